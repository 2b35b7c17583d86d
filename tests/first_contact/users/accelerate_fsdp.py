"""A pre-training engineer: a loop of one's own with Accelerate, FSDP2 on 8 GPUs. python accelerate_fsdp.py CHECKPOINT"""
import sys

import accelerate
import torch
import transformers

BATCH, TOKENS = 2, 1024


def main():
    plugin = accelerate.FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Qwen3DecoderLayer"])
    accelerator = accelerate.Accelerator(fsdp_plugin=plugin, mixed_precision="bf16")
    config = transformers.AutoConfig.from_pretrained(sys.argv[1])
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.train()
    ids = torch.randint(0, 1000, (64, TOKENS))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ids), batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    for step, (batch,) in zip(range(4), loader):
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
