// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expat.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace millrace::s3::detail {

/// Bounds on a document. The defaults fit a listing of 1000 keys, each of 1024 bytes, all of them escaped.
struct xml_limits {
  std::size_t document = 16u << 20;  ///< bytes
  std::size_t depth = 16;            ///< nested elements
  std::size_t text = 64u << 10;      ///< bytes of text in one element
};

/// Told what a document contains. `path` is the element from the root on, `ListBucketResult/Contents/Key`. May throw.
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
template <class = void>
class xml_reader {
 public:
  explicit xml_reader(xml_handler& handler, xml_limits limits = xml_limits()) : handler_(handler), limits_(limits) {}

  /// Empty when the document was read to its end, else what is wrong with it. `offset()` says where.
  std::string read(std::string_view document) {
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
    offset_ = static_cast<std::size_t>(XML_GetCurrentByteIndex(parser_) < 0 ? 0 : XML_GetCurrentByteIndex(parser_));
    if (!refusal_.empty()) return refusal_;
    if (XML_GetErrorCode(parser_) == XML_ERROR_NO_MEMORY) throw std::bad_alloc();
    return std::string("the answer is not intact XML: ") + XML_ErrorString(XML_GetErrorCode(parser_));
  }

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

  static void XMLCALL on_start(void* self, const XML_Char* name, const XML_Char**) {
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
  static void XMLCALL on_end(void* self, const XML_Char*) {
    auto& r = *static_cast<xml_reader*>(self);
    r.guarded([&] {
      if (r.is_leaf_) r.handler_.leaf(std::string_view(r.path_), r.text_);
      r.is_leaf_ = false;
      r.path_.resize(r.lengths_.back());
      r.lengths_.pop_back();
    });
  }
  static void XMLCALL on_text(void* self, const XML_Char* text, int size) {
    auto& r = *static_cast<xml_reader*>(self);
    r.guarded([&] {
      if (!r.is_leaf_) return;
      if (r.text_.size() + static_cast<std::size_t>(size) > r.limits_.text) {
        return r.refuse("an element of the XML answer is too long");
      }
      r.text_.append(text, static_cast<std::size_t>(size));
    });
  }
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
