"""A fine-tuning engineer: Hugging Face's Trainer with LoRA. python lora_trainer.py CHECKPOINT"""
import sys

import peft
import torch
import transformers

BATCH, TOKENS = 4, 1024


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        ids = torch.randint(0, 1000, (TOKENS,))
        return {"input_ids": ids, "labels": ids}


def main():
    config = transformers.AutoConfig.from_pretrained(sys.argv[1])
    model = transformers.AutoModelForCausalLM.from_config(config)  # from_pretrained, had it weights
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM"))
    arguments = transformers.TrainingArguments("out", per_device_train_batch_size=BATCH, gradient_accumulation_steps=2, bf16=True, max_steps=3, learning_rate=1e-4,
                                               report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True)
    transformers.Trainer(model, arguments, train_dataset=Texts()).train()


if __name__ == "__main__":
    main()
