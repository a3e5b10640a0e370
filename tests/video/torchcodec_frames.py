#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""torchcodec_frames.py FOLDER COUNT: decodes the videos FOLDER/0 to COUNT - 1 by torchcodec; writes the frames to N.rgb
(bytes, frames x height x width x 3), and when each is shown first to N.times (f64, seconds). Of a video that it fails to
decode there are no such files."""

import sys

from torchcodec.decoders import VideoDecoder

folder, count = sys.argv[1], int(sys.argv[2])
for n in range(count):
    decoder = VideoDecoder(f"{folder}/{n}", dimension_order="NHWC")
    try:
        frames = decoder.get_frames_in_range(0, len(decoder))
    except RuntimeError as error:
        print(f"torchcodec, video {n}: {error}", file=sys.stderr)
        continue
    for name, tensor in (("rgb", frames.data), ("times", frames.pts_seconds)):
        with open(f"{folder}/{n}.{name}", "wb") as out:
            out.write(tensor.contiguous().numpy().tobytes())
