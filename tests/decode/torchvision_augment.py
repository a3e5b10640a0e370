#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Writes an image of random floats, and what torchvision's transforms.v2 make of it.

    torchvision_augment.py FOLDER    FOLDER/image and FOLDER/NAME, floats; leaves with 77 without torchvision
"""

import sys

try:
    import torch
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional as f
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)

HEIGHT, WIDTH = 37, 50
torch.manual_seed(1)
image = torch.rand(3, HEIGHT, WIDTH)
image[:, 3, :9] = 0.25  # grey pixels
image[:, 4, :9] = 0
image[0, 5, :9] = image[1, 5, :9]  # two channels alike
image[2, 6, :9] = image[1, 6, :9]

results = {"image": image}
for factor in (0.0, 0.4, 1.0, 1.7):
    results[f"brightness {factor}"] = f.adjust_brightness(image, factor)
    results[f"contrast {factor}"] = f.adjust_contrast(image, factor)
    results[f"saturation {factor}"] = f.adjust_saturation(image, factor)
for turn in (-0.5, -0.2, 0.0, 0.1, 0.5):
    results[f"hue {turn}"] = f.adjust_hue(image, turn)
results["greyscale 0"] = f.rgb_to_grayscale(image, num_output_channels=3)
results["erase 0.5"] = f.erase(image, 5, 7, 11, 13, torch.tensor(0.5))
for angle in (30.0, -75.5, 91.0, 180.0, 0.0):
    results[f"nearest {angle}"] = f.rotate(image, angle, InterpolationMode.NEAREST, fill=[0.0])
    results[f"bilinear {angle}"] = f.rotate(image, angle, InterpolationMode.BILINEAR, fill=[0.0])
    results[f"filled {angle}"] = f.rotate(image, angle, InterpolationMode.BILINEAR, fill=[0.5])
for sigma in (0.3, 1.5, 4.0):
    results[f"blur {sigma}"] = f.gaussian_blur(image, [9, 9], [sigma, sigma])
for name, values in results.items():
    with open(f"{sys.argv[1]}/{name}", "wb") as out:
        out.write(values.contiguous().numpy().tobytes())
