// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expat.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// Bytes of the character that begins at `text[0]`, one above 0x7f; 0 when it is no UTF-8 or none that XML 1.0 allows.
inline std::size_t xml_character(std::string_view text) noexcept {
  const text::utf8_character c = text::first_utf8(text);
  return c.code == 0xfffe || c.code == 0xffff ? 0 : c.length;
}

/// `document` with a question mark for every character that XML 1.0 has no way to write, be it raw or a character
/// reference, and for every byte that is not UTF-8. Stores repeat keys in their answers as they are, and keys may hold
/// any of them; if the key does not matter, the rest of the answer is good.
std::string xml_legal(std::string_view document);

/// Bounds on a document. The defaults fit a listing of 1000 keys, each of 1024 bytes, all of them escaped.
struct xml_limits {
  std::size_t document = 16u << 20;  ///< bytes
  std::size_t depth = 16;            ///< nested elements
  std::size_t text = 64u << 10;      ///< bytes of text in one element
};

/// Receives the contents of a document. `path` is the element from the root on, `ListBucketResult/Contents/Key`. May
/// throw.
class xml_handler {
 public:
  /// An element begins, a leaf or not.
  virtual void enter(std::string_view) {}
  /// An element that has no others in it has ended.
  virtual void leaf(std::string_view path, const std::string& text) = 0;

 protected:
  ~xml_handler() = default;
};

/// Reads one small XML document and reports its leaves: elements with text and no elements in them.
///
/// No document type (so no entities beyond the five of XML and numeric ones), no encoding but UTF-8, nothing fetched.
/// Name prefixes are dropped. The handler must live as long as the reader.
class xml_reader {
 public:
  explicit xml_reader(xml_handler& handler, xml_limits limits = xml_limits()) : handler_(handler), limits_(limits) {}

  /// Returns an empty text when the document was read to its end, else its fault. `offset()` says where.
  std::string read(std::string_view document);

  /// Byte of the document at which reading failed.
  std::size_t offset() const noexcept { return offset_; }

 private:
  struct freer {
    void operator()(XML_Parser p) const noexcept { XML_ParserFree(p); }
  };
  static_assert(std::is_same_v<XML_Parser, XML_ParserStruct*>);

  /// Exceptions must not travel through expat, which is C: they wait until XML_Parse has returned.
  template <class Action>
  void guarded(Action action) noexcept {
    if (failure_ != nullptr || !refusal_.empty()) return;
    try {
      action();
    } catch (...) {
      failure_ = std::current_exception();
      XML_StopParser(parser_, XML_FALSE);
    }
  }
  void refuse(const char* why) {
    refusal_ = why;
    XML_StopParser(parser_, XML_FALSE);
  }

  static void XMLCALL on_start(void* self, const XML_Char* name, const XML_Char**);
  static void XMLCALL on_end(void* self, const XML_Char*);
  static void XMLCALL on_text(void* self, const XML_Char* text, int size);
  static void XMLCALL on_doctype(void* self, const XML_Char*, const XML_Char*, const XML_Char*, int) {
    auto& r = *static_cast<xml_reader*>(self);
    r.guarded([&] { r.refuse("the XML answer has a document type, which S3 never sends"); });
  }

  xml_handler& handler_;
  xml_limits limits_;
  XML_Parser parser_ = nullptr;
  std::string path_;
  std::vector<std::size_t> lengths_;
  std::string text_;
  bool is_leaf_ = false;
  std::string refusal_;
  std::exception_ptr failure_;
  std::size_t offset_ = 0;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/wire/detail/xml.ipp>
#endif
