"""Hugging Face's Trainer with LoRA from peft."""
import argparse
import tempfile

import peft
import torch
import transformers as t

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=4)
p.add_argument("--checkpoint", action="store_true")
p.add_argument("--bf16", action="store_true")
p.add_argument("--accumulate", type=int, default=1)
p.add_argument("--full", action="store_true", help="without LoRA")
p.add_argument("--optimizer", default="adamw_torch")
a = p.parse_args()

config = t.LlamaConfig(vocab_size=4000, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4)
model = t.LlamaForCausalLM(config)
if not a.full:
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.randint(0, 4000, (128,))
        return dict(input_ids=ids, labels=ids)


with tempfile.TemporaryDirectory() as folder:
    arguments = t.TrainingArguments(folder, per_device_train_batch_size=a.batch, max_steps=4, gradient_checkpointing=a.checkpoint, bf16=a.bf16, report_to=[],
                                    gradient_accumulation_steps=a.accumulate, save_strategy="no", logging_steps=1, optim=a.optimizer)
    t.Trainer(model, arguments, train_dataset=Data()).train()
