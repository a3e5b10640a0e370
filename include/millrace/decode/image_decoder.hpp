// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/decode/detail/linked_formats.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/decode/image_options.hpp>
#include <millrace/device/tensor_view.hpp>
#include <millrace/device/undecoded_image.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace {

/// Makes tensors of one size and type of JPEG, PNG and WebP images of any size: decodes, turns upright, crops, resizes,
/// mirrors, normalises, and stores each value once, where it is to be. What a file is called says nothing: its first
/// bytes tell the format. Grey images and those with other colours become red, green and blue; alpha channels are left
/// out.
///
/// Which formats there are is a matter of the components that a program is linked with (millrace::jpeg, millrace::png,
/// millrace::webp). Thread-safe: calls on several threads use memory of their own, kept for reuse. Copies share it.
///
/// The result depends on the data, the options and the random numbers alone, to the bit. Errors: decode_error, which
/// name the place `at`, and in a stage without one that of the stage's item: no image, a format that is not linked, cut
/// short, corrupt, larger than .max_pixels. What lies below the part that is taken is not read, and so not checked.
class image_decoder {
 public:
  /// Throws configuration_error for options that contradict each other. A template so that parts of a program that are
  /// linked with different formats do not take each other's.
  template <class Formats = detail::linked_formats>
  explicit image_decoder(const image_options& options) : image_decoder(options, Formats::makers()) {}
  image_decoder(const image_options& options, const detail::source_makers& formats);

  const image_options& options() const noexcept { return options_; }
  /// The shape of the tensors.
  shape dims() const;

  /// One tensor into memory of the caller, a row of a batch for example, of the shape dims() and the type of the
  /// options: anything else is a configuration_error. What a crop and a flip draw comes from `numbers`, a sample_rng or
  /// rng, the crop first.
  template <class Random>
  void into(const tensor_view& place, const bytes& data, Random& numbers, const where& at = where()) const {
    const auto draw = [](const image_options& o, int width, int height, void* from) {
      auto& random = *static_cast<Random*>(from);
      part p;
      p.box = o.crop.box(width, height, o.width, o.height, random);
      p.flipped = o.flip > 0 && random.uniform() < o.flip;
      return p;
    };
    into(place, data, +draw, &numbers, at);
  }

  /// The whole image at its own size, upright, 8 bits a channel: of the options, size, crop, flip, filter, layout and
  /// type do not matter.
  image whole(const bytes& data, const where& at = where()) const;
  /// The same image, of which only the header is read: for write_image(), and to_device() decodes it, on a GPU or on
  /// the host. The same options matter.
  undecoded_image undecoded(const bytes& data, const where& at = where()) const;

 private:
  /// What is taken of an upright image.
  struct part {
    image_box box;
    bool flipped = false;
  };
  using draw_part = part (*)(const image_options& options, int width, int height, void* numbers);

  // What one thread needs, in a chain while it is idle.
  struct workspace;
  struct shared;

  void into(const tensor_view& place, const bytes& data, draw_part draw, void* numbers, const where& at) const;
  template <class Use>
  void with_source(const bytes& data, const where& at, Use&& use, bool to_the_end = true) const;
  void convert(detail::image_source& source, workspace& w, void* tensor, draw_part draw, void* numbers) const;
  image copy(detail::image_source& source, workspace& w) const;

  std::unique_ptr<workspace> take() const;
  void give_back(std::unique_ptr<workspace> w) const noexcept;

  image_options options_;
  std::shared_ptr<shared> shared_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/impl/image_decoder.ipp>
#endif
