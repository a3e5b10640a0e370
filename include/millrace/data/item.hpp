// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <millrace/base/compiler.hpp>

// Functions and members that the type of an item may offer to the stages. All of it is optional: every movable type is
// an item. The functions are found beside the type (argument-dependent lookup): as friends, or in its namespace. They
// run on the loop's thread, once or more for each item at each stage: all but compact_slices() and collate() should be
// cheap and not throw. Their names are for the library alone: a program's function of another name is never called by
// accident.
//
// std::size_t byte_size(const T&)
//     The bytes that the item holds: for the bounds in bytes of buffer(), shuffle(), map_concurrent() and others, and
//     for the table of stats(). Known for std::string and, as a sum, for vectors. Else the item counts as 0 bytes.
// T compact_slices(T)
//     An equal item in less memory: slices of slabs are copied. shuffle() calls it for each item that stays; buffer(),
//     batch(), bucket_by_length(), map_concurrent() and run() only as slice_of() says. Else the item is held as it is.
// const bytes* slice_of(const T&)
//     One of its `bytes`, or null, to find out which slab the item keeps: those stages compact items while less than
//     half of the slabs is used by them. Else they never do.
// epoch_mark mark_of(const T&)
//     The mark that epochs() has set on the sample which the item is made of. Batches then know their epoch and do not
//     cross it, and a training can be resumed after them. Known for vectors of such items. Else state() throws.
// member `mark`, or void set_mark(T&, const epoch_mark&)
//     Sets the mark that mark_of() returns. With a default constructor an object of the type can then be an empty
//     entry: it stands where a sample was left out, could not be read, or pads an epoch, and has weight 0 in its batch.
//     Functions of the program are not called for it. Else stages that would have to make one are refused by run().
// members `from` and, optionally, `key`
//     An origin and a name: errors of functions that work on the item name the shard, the byte and the key.
// auto place_of(const T&)
//     The object that has these members, for an item that has none itself. Else errors do not name the item.
// std::size_t samples_in_batch(const T&)
//     The samples in a batch that run() yields: for the rates of stats(). Known for vectors. Else not known. A type
//     that has it is a batch, and never an empty entry.
// void collate(const T&, sample_writer&)
//     Writes the item into one row of a batch, for to_device(): see sample_writer in device/collate.hpp. Runs on the
//     pool. Else to_device() needs such a function as its argument.
// members `layout` and `write_to`
//     The item writes itself into its row, several at a time on the pool: batch() then yields batches that are laid out
//     already. See row_item in device/batch_rows.hpp, which is to be included. Else batch() yields vectors.
//
// A function that is given to map() or map_concurrent() may have a member
//
// U in_place_of(const epoch_mark&) const
//     The result for an empty entry, and for an item that is skipped because the function threw. It is to have the mark
//     that is passed. Else the stage makes one, by the default constructor and set_mark().
//
// A type that stands for a device beside others offers
//
// auto as_device(T)
//     The `device` (device/device.hpp) that it stands for, as cuda::stream does: for to_device() and batch_pool.
//
// docs/guide/own_types.md shows a type that offers each of them. The concepts below are what the stages ask. Each of
// the functions is called in one function of the library, which all others use: item_bytes() in coro/item_bytes.hpp,
// compacted() and first_slice() in flow/detail/compactor.hpp, mark_of_item() and set_item_mark() in
// data/epoch_mark.hpp, item_place in flow/failure_policy.hpp, item_samples() in loader/pipeline_run.hpp, collate_found
// in device/collate.hpp, device_of() in device/batch_pool.hpp.

namespace millrace::inline MILLRACE_ABI {

class bytes;
class epoch_mark;
class origin;

namespace detail {

template <class T>
concept has_byte_size = requires(const T& item) { static_cast<std::size_t>(byte_size(item)); };

template <class T>
concept has_compact_slices = requires(T&& item) { T(compact_slices(static_cast<T&&>(item))); };

template <class T>
concept has_slice = requires(const T& item) {
  { slice_of(item) } -> std::convertible_to<const bytes*>;
};

template <class T>
concept has_mark = requires(const T& item) {
  requires std::is_same_v<std::remove_cvref_t<decltype(mark_of(item))>, epoch_mark>;
};

template <class T>
concept shows_origin = requires(const T& item) {
  requires std::is_same_v<std::remove_cvref_t<decltype(item.from)>, origin>;
};
template <class T>
concept shows_key = requires(const T& item) { std::string_view(item.key); };
template <class T>
concept finds_origin = requires(const T& item) {
  requires shows_origin<std::remove_cvref_t<decltype(place_of(item))>>;
};
template <class T>
concept has_place = shows_origin<T> || finds_origin<T>;

template <class T>
concept has_samples_in_batch = requires(const T& item) { static_cast<std::size_t>(samples_in_batch(item)); };

template <class T>
concept has_set_mark = requires(T& item, const epoch_mark& mark) { set_mark(item, mark); };
template <class T>
concept shows_mark = requires(T& item) { requires std::is_same_v<decltype((item.mark)), epoch_mark&>; };
/// One sample, or an item made of one: not a batch.
template <class T>
concept marked_item = has_mark<T> && !has_samples_in_batch<T>;
template <class T>
concept can_set_mark = marked_item<T> && (has_set_mark<T> || shows_mark<T>);
template <class T>
concept can_be_empty = can_set_mark<T> && std::is_default_constructible_v<T>;

template <class F, class U>
concept has_in_place_of = requires(const F& f, const epoch_mark& mark) {
  { f.in_place_of(mark) } -> std::same_as<U>;
};

}  // namespace detail
}  // namespace millrace
