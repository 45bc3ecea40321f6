"""Model FLOPs of a token, forward and backward: 6 for each weight of a matrix, divided by 2^level for the
levels of a patch U-Net, and 12 D for each allowed pair of an attention layer. The optimizer is not
counted."""

import gzip
import math


def mlp_width(width, ratio):
    return 256 * math.ceil(math.floor(ratio * width) / 256)


def lengths(path, longest):
    """Tokens of each protein, with <cls> and <eos>, cut to the length of a chunk."""
    found, length = [], 0
    with gzip.open(path, "rt") as file:
        for line in file:
            if line.startswith(">"):
                found.append(length)
                length = 0
            length += 0 if line.startswith(">") else len(line.strip())
    return [min(n + 2, longest) for n in [*found[1:], length]]


def width_of(model, level):
    width, heads = model["hidden_size"], model["num_attention_heads"]
    levels = model["num_unet_layers"] // 2
    if levels == 1:
        return width
    unit = math.lcm(64, heads)
    wide = unit * math.ceil(width * (levels - 1 + level) / ((levels - 1) * unit))
    return min(wide, 128 * heads // unit * unit)


def layers_of(model, longest):
    """(level, width, has attention) of each block, and (level, weights) of each merge and expand."""
    width = model["hidden_size"]
    if model["architecture"] != "patch_unet":
        return [(0, width, True)] * model["num_hidden_layers"], []
    half, deepest = model["num_unet_layers"] // 2, int(math.log2(longest))
    blocks, between = [(0, width, True)] * model["num_extra_layers"], []
    for i in range(half):
        level = min(i, deepest)
        blocks += [(level, width_of(model, level), i < deepest)] * 2
        if i + 1 < half and level + 1 <= deepest and i + 1 <= deepest:
            size = 2 * width_of(model, level) * width_of(model, level + 1)
            between += [(level + 1, size)] * 2
    return blocks, between


def flops_of_token(model, longest, sample):
    tokens = lengths(sample, longest)
    blocks, weights = layers_of(model, longest)
    width, pairs = model["hidden_size"], 0.0
    weights = [*weights, (0, width * width + 33 * width)]  # the head
    for level, wide, attends in blocks:
        size = 2 * wide * mlp_width(wide, model["expansion_ratio"])
        if wide != width:
            size += wide * width  # the projection of x0
        if attends:
            size += 4 * wide * wide
            allowed = sum(math.ceil(n / 2**level) ** 2 for n in tokens)
            pairs += 12 * wide * allowed / sum(tokens)
        weights.append((level, size))
    return 6 * sum(size / 2**level for level, size in weights) + pairs
