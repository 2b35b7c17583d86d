"""Hugging Face's Trainer with torch_compile=True."""
import tempfile

import common  # noqa: F401
import torch
import transformers as t

model = t.LlamaForCausalLM(t.LlamaConfig(vocab_size=1000, hidden_size=128, intermediate_size=344, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.randint(0, 1000, (64,))
        return dict(input_ids=ids, labels=ids)


with tempfile.TemporaryDirectory() as folder:
    arguments = t.TrainingArguments(folder, per_device_train_batch_size=4, max_steps=3, bf16=True, torch_compile=True, report_to=[], save_strategy="no", logging_steps=1)
    t.Trainer(model, arguments, train_dataset=Data()).train()
