// The memtable of Diorite's tablets, as RocksDB's interface for memtables asks for it: see tree.h.

#include <memory>

#include "db/lookup_key.h"
#include "memory/arena.h"
#include "rocksdb/memtablerep.h"
#include "rocksdb/options.h"
#include "tree.h"

// As RocksDB defines it in db/c.cc, where nobody else sees it. The tests in ../memtable.rs fail if that changes.
struct rocksdb_options_t {
  ROCKSDB_NAMESPACE::Options rep;
};

namespace {

using namespace ROCKSDB_NAMESPACE;
using diorite::Entry;
using diorite::Key;

struct Order {
  const MemTableRep::KeyComparator& comparator;

  int operator()(const Entry* entry, const Key& key) const {
    return comparator(entry->stored(), Slice(key.data, key.size));
  }
};

struct Memory {
  Allocator* allocator;

  void* operator()(size_t bytes) const { return allocator->AllocateAligned(bytes); }
};

using Entries = diorite::Tree<Order, Memory>;

Key key_of(const Slice& internal) { return Key(internal.data(), internal.size()); }

// A key as memtables store it.
Key key_of(const char* stored) { return key_of(GetLengthPrefixedSlice(stored)); }

class EntryIterator : public MemTableRep::Iterator {
 public:
  explicit EntryIterator(const Entries& entries) : entries_(entries) {}

  bool Valid() const override { return at_ != nullptr; }
  const char* key() const override { return at_->stored(); }
  void Next() override { at_ = Entries::next(at_); }
  void Prev() override { at_ = entries_.until(at_->key(), false); }
  void Seek(const Slice& internal, const char* stored) override {
    at_ = entries_.from(stored == nullptr ? key_of(internal) : key_of(stored));
  }
  void SeekForPrev(const Slice& internal, const char* stored) override {
    at_ = entries_.until(stored == nullptr ? key_of(internal) : key_of(stored), true);
  }
  void SeekToFirst() override { at_ = entries_.first(); }
  void SeekToLast() override { at_ = entries_.last(); }

 private:
  const Entries& entries_;
  const Entry* at_ = nullptr;
};

class Memtable : public MemTableRep {
 public:
  Memtable(const KeyComparator& comparator, Allocator* allocator)
      : MemTableRep(allocator), entries_(Order{comparator}, Memory{allocator}) {}

  KeyHandle Allocate(const size_t len, char** buf) override {
    auto* entry = new (allocator_->AllocateAligned(sizeof(Entry) + len)) Entry;
    *buf = reinterpret_cast<char*>(entry + 1);
    return *buf;
  }

  void Insert(KeyHandle handle) override { entries_.insert(Entry::of(handle)); }

  bool Contains(const char* stored) const override {
    const Key key = key_of(stored);
    const Entry* entry = entries_.from(key);
    return entry != nullptr && Slice(entry->key().data, entry->key().size) == Slice(key.data, key.size);
  }

  void Get(const LookupKey& key, void* argument, bool (*is_to_go_on)(void*, const char*)) override {
    const Entry* entry = entries_.from(key_of(key.internal_key()));
    while (entry != nullptr && is_to_go_on(argument, entry->stored())) {
      entry = Entries::next(entry);
    }
  }

  // All memory is the allocator's.
  size_t ApproximateMemoryUsage() override { return 0; }

  MemTableRep::Iterator* GetIterator(Arena* arena) override {
    return arena == nullptr ? new EntryIterator(entries_)
                            : new (arena->AllocateAligned(sizeof(EntryIterator))) EntryIterator(entries_);
  }

 private:
  Entries entries_;
};

class Factory : public MemTableRepFactory {
 public:
  const char* Name() const override { return "diorite.Memtable"; }

  using MemTableRepFactory::CreateMemTableRep;
  MemTableRep* CreateMemTableRep(const MemTableRep::KeyComparator& comparator, Allocator* allocator,
                                 const SliceTransform*, Logger*) override {
    return new Memtable(comparator, allocator);
  }
};

}  // namespace

extern "C" void diorite_options_set_memtable(rocksdb_options_t* options) {
  options->rep.memtable_factory = std::make_shared<Factory>();
}
