// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/wire/detail/xml.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE std::string xml_legal(std::string_view document) {
  const auto legal = [](std::uint32_t c) {
    const bool control = c < 0x20 && c != '\t' && c != '\n' && c != '\r';
    return !control && (c < 0xd800 || c > 0xdfff) && c != 0xfffe && c != 0xffff;
  };
  std::string out;
  out.reserve(document.size());
  for (std::size_t i = 0; i < document.size(); ++i) {
    const char c = document[i];
    if (c == '&' && document.substr(i, 2) == "&#") {
      const std::size_t end = document.find(';', i);
      if (end != std::string_view::npos && end - i <= 10) {
        const bool hexadecimal = document[i + 2] == 'x';
        std::uint32_t value = 0;
        bool number = end > i + (hexadecimal ? 3u : 2u);
        for (std::size_t d = i + (hexadecimal ? 3 : 2); d < end; ++d) {
          const int digit = text::hex_digit(document[d]);
          number = number && digit >= 0 && (hexadecimal || digit < 10);
          value = value * (hexadecimal ? 16 : 10) + static_cast<std::uint32_t>(digit);
        }
        if (number && !legal(value)) {
          out += '?';
          i = end;
          continue;
        }
      }
    }
    if (static_cast<unsigned char>(c) >= 0x80) {
      const std::size_t n = xml_character(document.substr(i));
      if (n == 0) {
        out += '?';
      } else {
        out += document.substr(i, n);
        i += n - 1;
      }
      continue;
    }
    out += legal(static_cast<unsigned char>(c)) ? c : '?';
  }
  return out;
}

MILLRACE_INLINE std::string xml_reader::read(std::string_view document) {
  if (document.size() > limits_.document) return "the XML answer is longer than " + std::to_string(limits_.document);
  const std::unique_ptr<XML_ParserStruct, freer> parser(XML_ParserCreate("UTF-8"));
  if (parser == nullptr) throw std::bad_alloc();
  parser_ = parser.get();
  XML_SetUserData(parser_, this);
  XML_SetElementHandler(parser_, &on_start, &on_end);
  XML_SetCharacterDataHandler(parser_, &on_text);
  XML_SetStartDoctypeDeclHandler(parser_, &on_doctype);
  const XML_Status status = XML_Parse(parser_, document.data(), static_cast<int>(document.size()), XML_TRUE);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (status == XML_STATUS_OK) return std::string();
#if XML_MAJOR_VERSION > 2 || XML_MINOR_VERSION >= 9  // which calls the other one deprecated
  const std::int64_t index = XML_GetCurrentByteIndex64(parser_);
#else
  const std::int64_t index = XML_GetCurrentByteIndex(parser_);
#endif
  offset_ = static_cast<std::size_t>(std::max<std::int64_t>(index, 0));
  if (!refusal_.empty()) return refusal_;
  if (XML_GetErrorCode(parser_) == XML_ERROR_NO_MEMORY) throw std::bad_alloc();
  return std::string("the answer is not intact XML: ") + XML_ErrorString(XML_GetErrorCode(parser_));
}

MILLRACE_INLINE void XMLCALL xml_reader::on_start(void* self, const XML_Char* name, const XML_Char**) {
  auto& r = *static_cast<xml_reader*>(self);
  r.guarded([&] {
    if (r.lengths_.size() >= r.limits_.depth) return r.refuse("the XML answer is nested too deeply");
    const char* const colon = std::strrchr(name, ':');
    r.lengths_.push_back(r.path_.size());
    if (!r.path_.empty()) r.path_ += '/';
    r.path_ += colon == nullptr ? name : colon + 1;
    r.text_.clear();
    r.is_leaf_ = true;
    r.handler_.enter(std::string_view(r.path_));
  });
}

MILLRACE_INLINE void XMLCALL xml_reader::on_end(void* self, const XML_Char*) {
  auto& r = *static_cast<xml_reader*>(self);
  r.guarded([&] {
    if (r.is_leaf_) r.handler_.leaf(std::string_view(r.path_), r.text_);
    r.is_leaf_ = false;
    r.path_.resize(r.lengths_.back());
    r.lengths_.pop_back();
  });
}

MILLRACE_INLINE void XMLCALL xml_reader::on_text(void* self, const XML_Char* text, int size) {
  auto& r = *static_cast<xml_reader*>(self);
  r.guarded([&] {
    if (!r.is_leaf_) return;
    if (r.text_.size() + static_cast<std::size_t>(size) > r.limits_.text) {
      return r.refuse("an element of the XML answer is too long");
    }
    r.text_.append(text, static_cast<std::size_t>(size));
  });
}

}  // namespace millrace::s3::detail
