// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/callback.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/own_process.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/type_id.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/device/detail/slot_device.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/pixel_pool.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Values on the host beside the tensors of a batch: for each sample at most one value of each type (an
/// origin, a caption, a weight). A sample without one has a default-constructed value.
///
/// set() may be called for different samples from several threads at once; get() only after the last set().
class sample_tags {
 public:
  explicit sample_tags(std::size_t samples = 0) : samples_(samples) {}

  template <class T>
  void set(std::size_t sample, T value) {
    static_assert(std::is_default_constructible_v<T>, "a sample without this tag needs a default value");
    find_or_add<T>()[sample] = std::move(value);
  }

  /// The values of the first `n` samples; empty when no sample has one of this type.
  template <class T>
  std::span<const T> get(std::size_t n) const {
    for (const auto& c : columns_) {
      if (c->key == type_id::of<T>()) return std::span<const T>(static_cast<const typed<T>&>(*c).values, n);
    }
    return {};
  }

  /// Moves the values of sample `from` to sample `to`.
  void move_row(std::size_t from, std::size_t to) {
    for (const auto& c : columns_) c->move_row(from, to);
  }

 private:
  struct column {
    explicit column(type_id k) noexcept : key(k) {}
    virtual ~column() = default;
    virtual void move_row(std::size_t from, std::size_t to) = 0;
    const type_id key;
  };
  template <class T>
  struct typed final : column {
    typed(type_id k, std::size_t n) : column(k), values(new T[n]()) {}
    ~typed() override { delete[] values; }
    void move_row(std::size_t from, std::size_t to) override { values[to] = std::move(values[from]); }
    T* const values;
  };
  template <class T>
  T* find_or_add() {
    const std::lock_guard lock(mutex_);
    for (const auto& c : columns_) {
      if (c->key == type_id::of<T>()) return static_cast<typed<T>&>(*c).values;
    }
    auto* const made = new typed<T>(type_id::of<T>(), samples_);
    columns_.push_back(std::unique_ptr<column>(made));
    return made->values;
  }

  std::size_t samples_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<column>> columns_;
};

/// One tensor of a batch, as one sample's part of it: `{"image", dtype::u8, {224, 224, 3}}`, `{"label", dtype::i64}`.
class batch_field {
 public:
  batch_field(std::string name, dtype type, const shape& dims = shape())
      : name_(std::move(name)), type_(type), dims_(dims) {}

  /// A field without rows: of shape `dims` whatever the number of samples, such as the values of all samples one after
  /// the other, or the offsets where each sample begins.
  static batch_field of_batch(std::string name, dtype type, const shape& dims) {
    batch_field made(std::move(name), type, dims);
    made.has_rows_ = false;
    return made;
  }

  /// A field that has no memory on the host: to_device() makes it on the device, from tags of the batch (see
  /// undecoded_image).
  static batch_field of_device(std::string name, dtype type, const shape& dims) {
    batch_field made = of_batch(std::move(name), type, dims);
    made.on_host_ = false;
    return made;
  }

  const std::string& name() const noexcept { return name_; }
  dtype type() const noexcept { return type_; }
  /// The extents of one sample's part; where the tensor has no rows, of all of it.
  const shape& dims() const noexcept { return dims_; }
  /// True if each sample has a part of its own in the tensor.
  bool has_rows() const noexcept { return has_rows_; }
  /// True if the host has it, and not the device alone.
  bool on_host() const noexcept { return on_host_; }
  /// Bytes of one sample's part; where the tensor has no rows, of all of it.
  std::size_t row_bytes() const;
  /// Bytes of the tensor of `n` samples.
  std::size_t bytes_for(std::size_t n) const { return has_rows_ ? row_bytes() * n : row_bytes(); }
  /// "image u8 224x224x3".
  std::string text() const { return name_ + " " + name_of(type_) + " " + dims_.text(); }
  friend bool operator==(const batch_field&, const batch_field&) = default;

 private:
  std::string name_;
  dtype type_;
  shape dims_;
  bool has_rows_ = true;
  bool on_host_ = true;
};

/// The places of a batch's tensors in its one piece of memory: field after field, each for all samples, each at a
/// multiple of `alignment`; those without memory on the host after all others. Immutable; a copy is the same layout.
class batch_layout {
 public:
  /// Bytes; the alignment of cudaMalloc, and enough for vector loads and the tensor copy engines.
  static constexpr std::size_t alignment = 256;

  /// No fields, no samples.
  batch_layout() : batch_layout(0, std::vector<batch_field>()) {}

  /// `samples` is the most a batch holds. Throws configuration_error for two fields of one name or a size that does
  /// not fit.
  batch_layout(std::size_t samples, std::vector<batch_field> fields);

  /// The most samples of a batch.
  std::size_t samples() const noexcept { return state_->samples; }
  const std::vector<batch_field>& fields() const noexcept { return state_->fields; }
  /// Bytes of a full batch, on the host.
  std::size_t bytes() const noexcept { return state_->bytes; }
  /// On the device: with the fields that the host does not have.
  std::size_t device_bytes() const noexcept { return state_->device_bytes; }
  /// Bytes up to the end of the first `n` samples: to be copied for them.
  std::size_t bytes_for(std::size_t n) const {
    if (n == 0 || state_->bytes == 0) return 0;
    return state_->offsets[state_->last] + fields()[state_->last].bytes_for(n);
  }
  /// The offset of field `i`, in bytes.
  std::size_t offset(std::size_t i) const noexcept { return state_->offsets[i]; }

  /// The number of the field named `name`. Throws configuration_error that lists the fields there are.
  std::size_t find(std::string_view name) const;

  /// Field `i` of the first `n` samples of a batch that begins at `base`: the outermost extent is `n`, where it has
  /// rows.
  tensor_view tensor(void* base, std::size_t i, std::size_t n) const {
    const batch_field& f = fields()[i];
    return tensor_view(static_cast<char*>(base) + offset(i), f.type(),
                       f.has_rows() ? f.dims().with_outer(static_cast<std::int64_t>(n)) : f.dims());
  }
  /// Field `i` of sample `row`. usage_error if it has no rows.
  tensor_view row(void* base, std::size_t i, std::size_t row) const {
    if (!fields()[i].has_rows()) detail::misused("a field of a batch that is not made of rows was asked for one");
    return tensor_view(static_cast<char*>(base) + offset(i) + fields()[i].row_bytes() * row, fields()[i].type(),
                       fields()[i].dims());
  }

  friend bool operator==(const batch_layout& a, const batch_layout& b) {
    return a.state_ == b.state_ || (a.samples() == b.samples() && a.fields() == b.fields());
  }

 private:
  static constexpr std::size_t largest = static_cast<std::size_t>(-1) / 4;
  struct state {
    std::size_t samples = 0, bytes = 0, device_bytes = 0;
    std::size_t last = 0;  // of the fields that the host has
    std::vector<batch_field> fields;
    std::vector<std::size_t> offsets;
  };
  std::shared_ptr<const state> state_;
};

namespace detail {
/// Memory for a stage's batches: ordinary memory at first, page-locked memory once a later to_device() had to copy a
/// batch. Any thread.
class batch_memory {
 public:
  explicit batch_memory(slab_pool ordinary) : slabs_(std::move(ordinary)) {}

  /// For one batch. Throws the exceptions of the allocation.
  writable_bytes acquire(bool& page_locked);
  /// For batches that have not begun yet. Slabs that are too small are ignored.
  void become(const slab_pool& page_locked);

 private:
  std::mutex mutex_;
  slab_pool slabs_;
  bool page_locked_ = false;
};

/// The parts of a batch: shared by its writers and its readers.
struct batch_parts {
  batch_parts(const batch_layout& l, writable_bytes m, bool p, std::shared_ptr<batch_memory> of = nullptr);
  batch_layout layout;
  writable_bytes memory;
  bool pinned;
  std::shared_ptr<batch_memory> home;  // of the stage that makes such batches, where it can change
  std::vector<std::string> keys;
  std::vector<unsigned char> filled;  // bytes, so that rows may be marked by different threads
  sample_tags tags;
  std::vector<float> weights;
  epoch_mark mark;         // of all samples that joined
  std::size_t joined = 0;  // samples that have a row, written or not
  std::size_t size = 0;
};
}  // namespace detail

/// Samples laid out side by side in one piece of host memory: named tensors, and beside them a key and tags for each
/// sample. One owner; complete: it is not written to any more. Made by batch_builder or collate_batch().
///
/// The memory goes back to its pool when the batch is dropped; to_device() keeps the batch until the copy from it is
/// done.
class host_batch {
 public:
  host_batch() noexcept = default;
  explicit host_batch(std::shared_ptr<detail::batch_parts> parts) noexcept : parts_(std::move(parts)) {}
  host_batch(host_batch&&) noexcept = default;
  host_batch& operator=(host_batch&&) noexcept = default;

  explicit operator bool() const noexcept { return parts_ != nullptr; }
  /// How many samples there are; at most layout().samples().
  std::size_t size() const noexcept { return parts_ == nullptr ? 0 : parts_->size; }
  const batch_layout& layout() const noexcept { return parts_->layout; }
  /// True if the memory is page-locked, so that a device copies from it directly.
  bool pinned() const noexcept { return parts_ != nullptr && parts_->pinned; }
  /// Copies the samples to page-locked memory, which must be large enough, and gives the memory so far back.
  void move_to(writable_bytes page_locked);
  /// Asks the stage that makes such batches to make the next ones in such memory. Called by a stage that had to copy
  /// this one.
  void prefer(const slab_pool& page_locked) {
    if (parts_->home != nullptr) parts_->home->become(page_locked);
  }
  /// The begin of the memory, and how much of it the samples use.
  void* data() const noexcept { return parts_->memory.data(); }
  std::size_t bytes() const { return parts_ == nullptr ? 0 : layout().bytes_for(size()); }

  /// The tensor of all samples: its outermost extent is size(). Throws configuration_error for one that only the device
  /// has.
  tensor_view field(std::size_t i) const;
  tensor_view field(std::string_view name) const { return field(layout().find(name)); }
  /// The keys of the samples, in order; empty strings where none was given.
  template <class Text = std::string>
  std::span<const Text> keys() const noexcept {
    return {parts_->keys.data(), parts_->size};
  }
  /// The tags of type T, one a sample in order; empty when no sample has one.
  template <class T>
  std::span<const T> tags() const {
    return parts_->tags.get<T>(parts_->size);
  }
  /// The samples' weights: 1, or 0 for padding rows, whose tensors are zeros.
  template <class Weight = float>
  std::span<const Weight> weights() const noexcept {
    return {parts_->weights.data(), parts_->size};
  }
  /// The position of the training after this batch: its epoch, and whether it is the epoch's last one. Not known for
  /// samples that do not come from epochs().
  epoch_mark mark() const noexcept { return parts_ == nullptr ? epoch_mark() : parts_->mark; }
  void set_mark(const epoch_mark& mark) noexcept {
    if (parts_ != nullptr) parts_->mark = mark;
  }

 private:
  std::shared_ptr<detail::batch_parts> parts_;
};

/// For the bytes column of the stage table.
inline std::size_t byte_size(const host_batch& b) { return b.bytes(); }
inline std::size_t samples_in_batch(const host_batch& b) noexcept { return b.size(); }
inline epoch_mark mark_of(const host_batch& b) noexcept { return b.mark(); }
/// For stages that change the order of batches.
inline void set_mark(host_batch& b, const epoch_mark& mark) noexcept { b.set_mark(mark); }

namespace detail {

/// Device memory for one batch, the host batch that it was filled from, and the events that tell when the copy and its
/// consumers are done. One thread at a time. Functions that are not noexcept throw what the device throws.
class device_slot {
 public:
  /// A slot without memory.
  explicit device_slot(std::shared_ptr<slot_device> on) noexcept : on_(std::move(on)) {}
  device_slot(const device_slot&) = delete;
  device_slot& operator=(const device_slot&) = delete;

  void* memory() const noexcept { return memory_; }
  /// Of that memory, in bytes.
  std::size_t size() const noexcept { return size_; }

  // ---- memory, for the pool and the cache

  /// From now on the slot uses `on`, which is equal to the device before.
  void use_device(std::shared_ptr<slot_device> on) noexcept { on_ = std::move(on); }
  /// Memory for a slot that has none.
  void allocate(std::size_t size);
  /// Whether the device is done with the slot. Does not block.
  bool done() const;
  /// Whether the copy that was enqueued last is done, likewise.
  bool copied() const { return copied_ == nullptr || on_->query(copied_); }
  /// Drops the host batch, once the device is done. The memory and the events stay for the next one.
  void clear() noexcept;
  /// Makes sure that the copy's event is after every copy that was enqueued. False when the device has failed.
  bool fence() noexcept;
  /// Waits until the device is done with the slot, and frees the memory, which the destructor does not.
  void retire() noexcept;

  // ---- a batch, for the stage

  /// Enqueues the copy of `batch`, whose memory the device must be able to read until the copy is done.
  void fill(host_batch batch);
  /// Enqueues the decoding of the batch's images after its copy: by the device what it takes, on the host the others.
  /// May take long; on any thread. Throws decode_error, which names the sample, and configuration_error for a batch
  /// with several fields of images.
  void decode();

  // ---- the batch's consumer, on any thread, from fill() until release()

  const own_process process;  // whose device it is

  /// The number of the batch, under which address_looks notes that its address was taken.
  std::uint32_t number() const noexcept { return number_; }
  const host_batch& host() const noexcept { return host_; }
  std::string device_name() const { return on_->name(); }
  /// Makes the stream wait for the copy, and remembers it as one that uses the slot.
  void wait(stream_ref stream);
  /// Records the stream's end as a use of the slot, and remembers it.
  void mark(stream_ref stream);
  bool ready();
  void synchronize();
  /// Ends the batch's use of the slot: the work enqueued so far on the remembered streams is the last use. The caller
  /// owns the pool, which may give the slot to another batch, or destroy it, at once.
  void release() noexcept;

 private:
  friend class slot_pool;
  using event = slot_device::object;
  struct user {
    stream_ref stream;
    event done;
    bool active;  // of the batch in the slot now; the event is kept for the next one
  };

  user& find_or_add(stream_ref stream);
  void check_waited() const;
  void record_copy();
  void finish(stream_ref stream) noexcept;

  std::shared_ptr<slot_device> on_;
  void* memory_ = nullptr;
  std::size_t size_ = 0;
  event copied_;
  std::vector<user> users_;
  host_batch host_;
  std::vector<stream_ref> unmarked_;  // use the slot, and could not be marked
  std::vector<pixel_buffer> pixels_;  // decoded on the host, on their way
  slot_device::object decoding_;      // what a device that decodes keeps from batch to batch
  bool unfenced_ = false;             // a copy may be enqueued that is after the event
  std::uint32_t number_ = 0;          // of the batch
  bool waited_ = false;               // for its copy: a stream, or the host
  callback<void(device_slot& slot, std::exception_ptr failed)> returned_;  // release() calls the pool
  std::size_t index_ = 0;                                                  // in the pool
};

}  // namespace detail

/// A batch in the memory of a device, on its way or there already: what to_device() yields.
///
///     batch.wait(stream);                                    // the GPU waits for the copy, the host does not
///     train<<<..., stream>>>(batch.field("image").as<unsigned char>(), ...);
///     batch.release(stream);                                 // or let the batch go out of scope
///
/// Memory: a slot of a small ring, at the same few addresses from batch to batch. It is written again only after
/// everything that the streams given to wait() and release() had enqueued by the time of the release is done. The
/// streams must be alive at the release, and capture no graph: call these functions before and after the launch of one.
/// Keys, tags and the host's copy of the tensors stay readable as long as the batch.
///
/// Misuse: to take the address of a field() (data(), as(), values(), to_dlpack()) while neither a stream nor the host
/// has waited for the copy. In debug builds (without NDEBUG) release(stream) then throws usage_error; if the batch is
/// dropped, the pipeline's next batch throws it. Shapes and types of fields, size() and keys() are available before.
///
/// Ownership: one owner; used by one thread at a time, which may be another than the pipeline's. It may outlive the
/// pipeline and the runtime: then its release waits for the device and frees the slot (after a run() it does not wait,
/// see free_device_slots()).
class device_batch {
 public:
  device_batch() noexcept = default;
  /// `slot` owns the object that the slot is a part of.
  explicit device_batch(std::shared_ptr<detail::device_slot> slot) noexcept : slot_(std::move(slot)) {}
  device_batch(device_batch&& other) noexcept : slot_(std::move(other.slot_)) {}
  device_batch& operator=(device_batch&& other) noexcept;
  /// Releases. Does not wait, unless the device fails or the runtime has ended.
  ~device_batch() { MILLRACE_LAUNDER(this)->release(); }

  /// False after release() or for a batch that was moved from: there is nothing to look at then.
  explicit operator bool() const noexcept { return slot_ != nullptr; }

  /// How many samples there are.
  std::size_t size() const { return host().size(); }
  const batch_layout& layout() const { return host().layout(); }
  /// Bytes that were copied.
  std::size_t bytes() const { return host().bytes(); }
  /// The device that has the memory: "cuda:0", "host".
  std::string device() const { return slot().device_name(); }

  /// A tensor of all samples in the device's memory; its outermost extent is size().
  tensor_view field(std::size_t i) const {
    return layout().tensor(slot().memory(), i, size()).of_batch(slot().number());
  }
  tensor_view field(std::string_view name) const { return field(layout().find(name)); }
  /// That tensor as the host sent it, to be read only: labels for a metric, say.
  tensor_view host_field(std::size_t i) const { return host().field(i); }
  tensor_view host_field(std::string_view name) const { return host().field(name); }
  /// The keys of the samples; empty strings where none was given.
  template <class Text = std::string>
  std::span<const Text> keys() const {
    return host().keys();
  }
  /// The tags of type T, one a sample; empty when no sample has one.
  template <class T>
  std::span<const T> tags() const {
    return host().template tags<T>();
  }
  /// The samples' weights, on the host; see host_batch::weights().
  template <class Weight = float>
  std::span<const Weight> weights() const {
    return host().weights();
  }
  /// The position of the training after this batch; see host_batch::mark().
  epoch_mark mark() const { return host().mark(); }

  /// Work that is enqueued on `stream` from now on starts after the copy. Does not block the host. May be called for
  /// several streams. A null stream, here and below, is the default stream of the batch's device, whichever is current.
  /// Throws configuration_error for a stream of another kind of device, for CUDA's default stream per thread (another
  /// one on the next thread) and for a stream that captures a graph, and the exceptions of the device.
  void wait(stream_ref stream) { slot().wait(stream); }
  /// True if the copy is done; never blocks.
  bool ready() const { return slot().ready(); }
  /// Blocks the calling thread until the copy is done: for host_device and for debugging.
  void synchronize() const { slot().synchronize(); }

  /// Returns the slot after the work that is enqueued so far on `stream` and on every stream that waited. The batch is
  /// then empty. Throws configuration_error, releasing nothing, for a stream of another kind of device.
  void release(stream_ref stream);
  /// Returns the slot after the streams that waited; at once if none did.
  void release() noexcept;

 private:
  detail::device_slot& slot() const;
  const host_batch& host() const { return slot().host(); }

  std::shared_ptr<detail::device_slot> slot_;
};

/// For the bytes column of the stage table.
inline std::size_t byte_size(const device_batch& b) { return b ? b.bytes() : 0; }
inline std::size_t samples_in_batch(const device_batch& b) noexcept { return b ? b.size() : 0; }
inline epoch_mark mark_of(const device_batch& b) { return b ? b.mark() : epoch_mark(); }

namespace detail {
/// Its slots are in the bound of to_device().
template <>
inline constexpr bool declared_before_v<device_batch> = true;
}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/batch.ipp>
#endif
