// The sorted entries of a memtable: a list in the order of the keys, and a B+ tree that finds a place in it.
//
// One thread inserts; any number of threads read meanwhile, and wait for nothing. Entries and nodes stay where they are
// until all of it is dropped.
//
// A search compares prefixes of keys, which nodes hold beside the pointers, so it reads few cache lines; keys of different
// partitions differ there, as they begin with a token. RocksDB's skip list reads an entry in each step.
//
// Why readers need no lock. The list alone is the truth: an entry is in the list, with its successor, before anything in
// the tree points to it, and readers walk the list to the place that they want. The tree only has to yield an entry
// before that place. It does, whatever the writer has done in between, because
//
// 1. in a node that others can reach, the entry in a slot is only ever replaced by one with a smaller key, and the child in
//    a slot by one with smaller keys: inserting moves slots up, beginning with the last; splitting a node copies its upper
//    half and leaves the slots as they are;
// 2. a slot's pointer is stored before its prefix and loaded after it, so the pointer is of the prefix that was seen, or
//    of a smaller key;
// 3. slot 0 of an inner node never changes, nor does that of a leaf that is not the first one: its entry is the key that
//    separates it from the leaf before.
//
// So a reader that finds a prefix or a key below its own in a slot gets a pointer to a key, or to a subtree of keys, that
// begins below its own. At worst it begins too far to the left, and walks further.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace diorite {

// An internal key of RocksDB: the user's key and eight more bytes.
struct Key {
  const char* data;
  size_t size;
  // A number that is not greater than that of any greater key. If it is equal, the keys themselves decide.
  uint64_t prefix;

  Key(const char* of, size_t bytes) : data(of), size(bytes), prefix(prefix_of(of, bytes - 8)) {}

 private:
  // The first eight bytes. A tablet's records of transactions and indexes begin with eight zeros, so of these keys it is what
  // follows, in six bytes, and the few tokens that would be as small are all alike.
  static uint64_t prefix_of(const char* user, size_t size) {
    const uint64_t first = word(user, size);
    if (first != 0) {
      return first < LEAST_OF_TOKENS ? LEAST_OF_TOKENS : first;
    }
    return size <= 8 ? 0 : word(user + 8, size - 8) >> 16;
  }

  // Eight bytes as a number that is greater for greater keys. Shorter keys end with zeros: there are eight bytes beyond.
  static uint64_t word(const char* user, size_t size) {
    uint64_t word;
    std::memcpy(&word, user, 8);
    if constexpr (std::endian::native == std::endian::little) {
      word = __builtin_bswap64(word);
    }
    if (size < 8) {
      word = size == 0 ? 0 : word >> (64 - 8 * size) << (64 - 8 * size);
    }
    return word;
  }

  static constexpr uint64_t LEAST_OF_TOKENS = uint64_t{1} << 48;
};

// An entry, followed by what RocksDB stores of it: the length of the internal key as a varint, the key, and more.
struct Entry {
  std::atomic<Entry*> next;

  const char* stored() const { return reinterpret_cast<const char*>(this + 1); }
  static Entry* of(void* stored) { return static_cast<Entry*>(stored) - 1; }

  Key key() const {
    const auto* at = reinterpret_cast<const unsigned char*>(stored());
    size_t size = *at & 0x7F;
    for (unsigned shift = 7; *at++ & 0x80; shift += 7) {
      size |= static_cast<size_t>(*at & 0x7F) << shift;
    }
    return Key(reinterpret_cast<const char*>(at), size);
  }
};

// `Order` is called with an entry and a key whose prefixes are equal, and says which is greater, as memcmp does.
// `Memory` gives aligned memory, which it frees when the tree is gone.
template <class Order, class Memory>
class Tree {
 public:
  Tree(Order order, Memory memory) : order_(order), memory_(memory), root_(make<Leaf>()) {
    head_.next.store(nullptr, std::memory_order_relaxed);
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  // Adds an entry whose key is not in the tree. Only one thread may do that.
  void insert(Entry* entry) {
    const Key key = entry->key();
    Leaf* leaf = leaf_for(key);
    size_t at = below(leaf->slots, 0, leaf->slots.count(), key);
    Entry* before = at == 0 ? &head_ : leaf->slots.entry(at - 1);
    entry->next.store(before->next.load(std::memory_order_relaxed), std::memory_order_relaxed);
    before->next.store(entry, std::memory_order_release);
    leaf->rising = at == leaf->slots.count() ? leaf->rising + 1 : 0;
    leaf->slots.insert(at, key.prefix, entry);
    if ((at > 0 && leaf->slots.prefix(at - 1) == key.prefix) ||
        (at + 1 < leaf->slots.count() && leaf->slots.prefix(at + 1) == key.prefix)) {
      remember();
    }
  }

  // The first entry whose key is not less than this one, or null.
  const Entry* from(const Key& key) const {
    const Entry* entry = next(before(key));
    while (entry != nullptr && compare(entry, key) < 0) {
      entry = next(entry);
    }
    return entry;
  }

  // The last entry whose key is less than this one, or is this one if `or_equal`; or null.
  const Entry* until(const Key& key, bool or_equal) const {
    const Entry* found = before(key);
    for (const Entry* entry = next(found); entry != nullptr; entry = next(entry)) {
      const int order = compare(entry, key);
      if (order > 0 || (order == 0 && !or_equal)) {
        break;
      }
      found = entry;
    }
    return found == &head_ ? nullptr : found;
  }

  const Entry* first() const { return next(&head_); }

  // The last entry, or null.
  const Entry* last() const {
    const Node* node = root_.load(std::memory_order_acquire);
    while (node->level > 0) {
      const auto* inner = static_cast<const Inner*>(node);
      node = inner->child(inner->slots.count() - 1);
    }
    const auto& slots = static_cast<const Leaf*>(node)->slots;
    const size_t count = slots.count();
    const Entry* found = count == 0 ? &head_ : slots.entry(count - 1);
    while (const Entry* entry = next(found)) {
      found = entry;
    }
    return found == &head_ ? nullptr : found;
  }

  static const Entry* next(const Entry* entry) { return entry->next.load(std::memory_order_acquire); }

 private:
  static constexpr size_t LEAF_SLOTS = 32;
  static constexpr size_t INNER_SLOTS = 48;
  // After so many entries in a row at the end of a leaf, more are expected there.
  static constexpr uint32_t RISING = 8;
  // The places that are remembered: each batch writes the tablet's state, and may write to some partitions.
  static constexpr size_t PLACES = 4;

  // Keys in order, each with its prefix.
  template <size_t CAPACITY>
  class Slots {
   public:
    size_t count() const { return count_.load(std::memory_order_acquire); }
    uint64_t prefix(size_t at) const { return prefixes_[at].load(std::memory_order_acquire); }
    Entry* entry(size_t at) const { return entries_[at].load(std::memory_order_acquire); }
    bool is_full() const { return count() == CAPACITY; }

    // The order of the two stores is explained above.
    void set(size_t at, uint64_t prefix, Entry* entry) {
      entries_[at].store(entry, std::memory_order_release);
      prefixes_[at].store(prefix, std::memory_order_release);
    }
    void move_up(size_t at) { set(at + 1, prefix(at), entry(at)); }
    void set_count(size_t count) { count_.store(count, std::memory_order_release); }

    void insert(size_t at, uint64_t prefix, Entry* entry) {
      const size_t count = this->count();
      for (size_t from = count; from > at; from--) {
        move_up(from - 1);
      }
      set(at, prefix, entry);
      set_count(count + 1);
    }

   private:
    std::atomic<size_t> count_{0};
    std::atomic<uint64_t> prefixes_[CAPACITY];
    std::atomic<Entry*> entries_[CAPACITY];
  };

  struct Node {
    // 0: a leaf.
    uint32_t level = 0;
  };

  struct Leaf : Node {
    // Most leaves are in no cache, and both halves of one are needed at once.
    void prefetch() const {
      for (size_t at = 0; at < sizeof(Leaf); at += 64) {
        __builtin_prefetch(reinterpret_cast<const char*>(this) + at);
      }
    }

    // How many entries were last inserted one after another at the end. Only the writer looks at it.
    uint32_t rising = 0;
    Slots<LEAF_SLOTS> slots;
  };

  struct Inner : Node {
    // The key of a slot is the first one of its child; that of slot 0 is not looked at.
    Slots<INNER_SLOTS> slots;
    std::atomic<Node*> children[INNER_SLOTS];

    Node* child(size_t at) const { return children[at].load(std::memory_order_acquire); }

    void insert(size_t at, uint64_t prefix, Entry* first, Node* child) {
      const size_t count = slots.count();
      for (size_t from = count; from > at; from--) {
        children[from].store(this->child(from - 1), std::memory_order_release);
        slots.move_up(from - 1);
      }
      children[at].store(child, std::memory_order_release);
      slots.set(at, prefix, first);
      slots.set_count(count + 1);
    }
  };

  template <class Made>
  Made* make() {
    return new (memory_(sizeof(Made))) Made;
  }

  int compare(const Entry* entry, const Key& key) const {
    const Key own = entry->key();
    if (own.prefix != key.prefix) {
      return own.prefix < key.prefix ? -1 : 1;
    }
    return order_(entry, key);
  }

  // The first slot, from `low` on, whose key is not less than this one.
  template <size_t CAPACITY>
  size_t below(const Slots<CAPACITY>& slots, size_t low, size_t high, const Key& key) const {
    while (low < high) {
      const size_t middle = (low + high) / 2;
      const uint64_t prefix = slots.prefix(middle);
      const bool is_less =
          prefix != key.prefix ? prefix < key.prefix : compare(slots.entry(middle), key) < 0;
      low = is_less ? middle + 1 : low;
      high = is_less ? high : middle;
    }
    return low;
  }

  // An entry whose key is less than this one, close to it if nothing is being inserted there; or the head.
  const Entry* before(const Key& key) const {
    const Node* node = root_.load(std::memory_order_acquire);
    while (node->level > 0) {
      const auto* inner = static_cast<const Inner*>(node);
      node = child_of(inner, below(inner->slots, 1, inner->slots.count(), key) - 1);
    }
    const auto& slots = static_cast<const Leaf*>(node)->slots;
    const size_t at = below(slots, 0, slots.count(), key);
    return at == 0 ? &head_ : slots.entry(at - 1);
  }

  // A leaf, and the keys between which all keys of it are. Null: there is none.
  struct Place {
    Leaf* leaf = nullptr;
    Entry* low = nullptr;
    Entry* high = nullptr;
    uint64_t low_prefix = 0;
    uint64_t high_prefix = 0;
  };

  bool is_in(const Place& place, const Key& key) const {
    return place.leaf != nullptr && place.low_prefix <= key.prefix && key.prefix <= place.high_prefix &&
           (place.low == nullptr || place.low_prefix < key.prefix || compare(place.low, key) < 0) &&
           (place.high == nullptr || key.prefix < place.high_prefix || compare(place.high, key) > 0);
  }

  // Where keys have equal prefixes, finding a leaf costs many cache misses, and keys are often inserted beside the last ones.
  void remember() {
    for (const Place& place : places_) {
      if (place.leaf == place_.leaf) {
        return;
      }
    }
    places_[next_place_] = place_;
    next_place_ = (next_place_ + 1) % PLACES;
  }

  // The leaf that is to hold the key, with room for it.
  Leaf* leaf_for(const Key& key) {
    for (const Place& place : places_) {
      if (is_in(place, key) && !place.leaf->slots.is_full()) {
        place_ = place;
        return place.leaf;
      }
    }
    place_ = place_for(key);
    return place_.leaf;
  }

  // As `leaf_for`, from the root. Full nodes on the way are split, so that parents have room.
  Place place_for(const Key& key) {
    Place place;
    place.high_prefix = UINT64_MAX;
    Node* node = root_.load(std::memory_order_relaxed);
    if (is_full(node)) {
      Inner* root = make<Inner>();
      root->level = node->level + 1;
      root->insert(0, 0, nullptr, node);
      root_.store(root, std::memory_order_release);
      node = root;
    }
    while (node->level > 0) {
      auto* inner = static_cast<Inner*>(node);
      size_t at = below(inner->slots, 1, inner->slots.count(), key) - 1;
      if (is_full(child_of(inner, at))) {
        split(inner, at, key);
        at = below(inner->slots, 1, inner->slots.count(), key) - 1;
      }
      if (at > 0) {
        place.low = inner->slots.entry(at);
        place.low_prefix = inner->slots.prefix(at);
      }
      if (at + 1 < inner->slots.count()) {
        place.high = inner->slots.entry(at + 1);
        place.high_prefix = inner->slots.prefix(at + 1);
      }
      node = inner->child(at);
    }
    place.leaf = static_cast<Leaf*>(node);
    return place;
  }

  static Node* child_of(const Inner* inner, size_t at) {
    Node* child = inner->child(at);
    if (inner->level == 1) {
      static_cast<Leaf*>(child)->prefetch();
    }
    return child;
  }

  static bool is_full(const Node* node) {
    return node->level == 0 ? static_cast<const Leaf*>(node)->slots.is_full()
                            : static_cast<const Inner*>(node)->slots.is_full();
  }

  // Splits a child, which is full. The new node is in its parent before the old one is cut.
  void split(Inner* parent, size_t at, const Key& key) {
    Node* child = parent->child(at);
    if (child->level > 0) {
      auto* low = static_cast<Inner*>(child);
      auto* high = make<Inner>();
      high->level = low->level;
      for (size_t from = INNER_SLOTS / 2; from < INNER_SLOTS; from++) {
        high->insert(from - INNER_SLOTS / 2, low->slots.prefix(from), low->slots.entry(from), low->child(from));
      }
      publish(parent, at, high->slots, high);
      low->slots.set_count(INNER_SLOTS / 2);
      return;
    }
    auto* low = static_cast<Leaf*>(child);
    for (Place& place : places_) {
      place.leaf = place.leaf == low ? nullptr : place.leaf;
    }
    // What rises leaves full leaves behind it: the new one begins with the entry that comes next.
    const bool is_rising = low->rising >= RISING && compare(low->slots.entry(LEAF_SLOTS - 1), key) < 0;
    const size_t kept = is_rising ? LEAF_SLOTS - 1 : LEAF_SLOTS / 2;
    auto* high = make<Leaf>();
    for (size_t from = kept; from < LEAF_SLOTS; from++) {
      high->slots.insert(from - kept, low->slots.prefix(from), low->slots.entry(from));
    }
    high->rising = is_rising ? low->rising : 0;
    publish(parent, at, high->slots, high);
    low->slots.set_count(kept);
  }

  template <size_t CAPACITY>
  static void publish(Inner* parent, size_t at, const Slots<CAPACITY>& slots, Node* node) {
    parent->insert(at + 1, slots.prefix(0), slots.entry(0), node);
  }

  const Order order_;
  Memory memory_;
  // Comes before all entries.
  Entry head_;
  std::atomic<Node*> root_;
  // What follows is the writer's: where it inserted last, and other places where it may insert again.
  Place place_;
  Place places_[PLACES];
  size_t next_place_ = 0;
};

}  // namespace diorite
