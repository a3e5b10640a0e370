// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The reader's program in the recipes of the README and of the guide: uses every component that the recipe has named,
// and says what it is linked with.

#include <cstdio>
#include <string>
#include <string_view>

#include <millrace/decode/image_decoder.hpp>
#include <millrace/millrace.hpp>
#include <millrace/shards/http_storage.hpp>
#if defined(MILLRACE_WITH_AUDIO)
#include <millrace/decode/audio_decoder.hpp>
#endif

namespace mill = millrace;

#if defined(MILLRACE_SEPARATE_COMPILATION)
void evaluate();
#endif

namespace {

template <class Decode>
void say(const char* name, Decode&& decode) {
  try {
    decode();
  } catch (const mill::decode_error& e) {
    const bool absent = std::string_view(e.what()).find("built without") != std::string_view::npos;
    std::printf("%s: %s; ", name, absent ? "absent" : "broken");
  }
}

// Linked, not run: there is no store here.
void train() {
  auto s3 = mill::s3::client::from_environment();
  auto store = mill::stores(s3, std::make_shared<mill::http_storage>(), mill::files());
  auto samples = s3.list("s3://corpus/train/") | mill::fetch(store) | mill::untar() | mill::group_samples();
  auto run = mill::run(std::move(samples));
  for (const mill::sample& s : run) std::puts(std::string(s.key).c_str());
}

}  // namespace

int main(int count, char**) {
  const mill::image_decoder images({.height = 1, .width = 1});
  using namespace std::string_view_literals;
  say("jpeg", [&] { images.whole(mill::bytes::copy("\xff\xd8\xff\xe0 no more"sv)); });
  say("png", [&] { images.whole(mill::bytes::copy("\x89PNG\r\n\x1a\n no more"sv)); });
  say("webp", [&] { images.whole(mill::bytes::copy("RIFF\x10\0\0\0WEBPVP8 no more"sv)); });
#if defined(MILLRACE_WITH_AUDIO)
  say("audio", [] { mill::audio_decoder()(mill::bytes::copy("RIFF\x10\0\0\0WAVEfmt no more"sv)); });
#endif
  if (count > 1) train();
#if defined(MILLRACE_SEPARATE_COMPILATION)
  evaluate();
#else
  std::puts("alone");
#endif
  return 0;
}
