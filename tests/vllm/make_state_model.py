"""Makes a small model with states (Mamba2) beside attention, with random weights: make_state_model.py FOLDER."""

import sys

import torch
from make_model import BYTES, END, SEED, make_tokenizer
from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM


def main():
    folder = sys.argv[1]
    torch.manual_seed(SEED)
    config = GraniteMoeHybridConfig(
        vocab_size=BYTES + 64, hidden_size=256, intermediate_size=512, shared_intermediate_size=512, num_hidden_layers=6,
        layer_types=["mamba", "mamba", "attention"] * 2, num_attention_heads=8, num_key_value_heads=4, num_local_experts=0,
        num_experts_per_tok=0, mamba_n_heads=16, mamba_d_head=32, mamba_d_state=16, mamba_n_groups=1, mamba_expand=2, mamba_d_conv=4,
        mamba_chunk_size=64, max_position_embeddings=2048, position_embedding_type="rope", bos_token_id=None, eos_token_id=END,
        pad_token_id=None, initializer_range=0.15)
    GraniteMoeHybridForCausalLM(config).to(torch.float32).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)


if __name__ == "__main__":
    main()
