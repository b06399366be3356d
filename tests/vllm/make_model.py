"""Makes the model of the tests: a small Llama with random weights and a tokenizer of its own, so that nothing is fetched.

    make_model.py FOLDER
"""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 7
BYTES = 256
END = BYTES  # the id of the end of a text


def make_tokenizer():
    """One token for each byte, so that the length of a prompt in tokens is known."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)} | {"<end>": END}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


def make_model():
    torch.manual_seed(SEED)
    # Weights larger than usual: with small ones a random model says one token for ever, whatever it has read.
    config = LlamaConfig(vocab_size=BYTES + 64, hidden_size=256, intermediate_size=512, num_hidden_layers=6,
                         num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=2048,
                         bos_token_id=None, eos_token_id=END, initializer_range=0.15)
    return LlamaForCausalLM(config).to(torch.float32)


def main():
    folder = sys.argv[1]
    make_model().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)


if __name__ == "__main__":
    main()
