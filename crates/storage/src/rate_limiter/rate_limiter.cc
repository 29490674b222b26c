// RocksDB's rate limiter can be told another rate while it is in use; RocksDB's C interface cannot say so.

#include <cstdint>
#include <memory>

#include "rocksdb/rate_limiter.h"

// As RocksDB defines it in db/c.cc, where nobody else sees it. `the_rate_is_that_which_was_set_last` in ../rate_limiter.rs fails if that changes.
struct rocksdb_ratelimiter_t {
  std::shared_ptr<ROCKSDB_NAMESPACE::RateLimiter> rep;
};

extern "C" void diorite_ratelimiter_set(rocksdb_ratelimiter_t* limiter, int64_t bytes_per_second) {
  limiter->rep->SetBytesPerSecond(bytes_per_second);
}

extern "C" int64_t diorite_ratelimiter_get(const rocksdb_ratelimiter_t* limiter) {
  return limiter->rep->GetBytesPerSecond();
}
