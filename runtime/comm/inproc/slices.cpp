// SPDX-License-Identifier: Apache-2.0
//
// How bytes move: the slice of each collective that belongs to one member, and what makes two posts the same
// collective.
//
//     all_reduce, 3 members           slice 1 reads part 1 of every input, in ascending order,
//     [ 0 | 1 | 2 ]  member 0         and writes the sum to part 1 of every output;
//     [ 0 | 1 | 2 ]  member 1         no other slice touches part 1, so it may be in place
//     [ 0 | 1 | 2 ]  member 2
#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/comm/inproc/group.h"

namespace paratope::comm::inproc {
namespace {

// Elements are reduced in blocks that stay in cache while the members are walked.
constexpr int64_t block_elements = 1024;

template <class T, class Combine>
void reduce_range(const std::vector<Post> &posts, int64_t begin, int64_t end, Combine combine) {
  T sum[block_elements];
  for (int64_t at = begin; at < end; at += block_elements) {
    int64_t count = std::min(block_elements, end - at);
    std::copy_n(static_cast<const T *>(posts[0].input) + at, count, sum);
    for (size_t m = 1; m < posts.size(); ++m) {
      const T *input = static_cast<const T *>(posts[m].input) + at;
      for (int64_t i = 0; i < count; ++i)
        sum[i] = combine(sum[i], input[i]);
    }
    for (const Post &post : posts)
      std::copy_n(sum, count, static_cast<T *>(post.output) + at);
  }
}

void all_reduce_slice(const std::vector<Post> &posts, int64_t slice) {
  auto size = static_cast<int64_t>(posts.size());
  int64_t count = posts[0].count;
  // floor(count·slice/size) without overflow
  auto cut = [&](int64_t j) { return count / size * j + count % size * j / size; };
  if (posts[0].reduce == Reduce::sum_f32)
    reduce_range<float>(posts, cut(slice), cut(slice + 1), [](float a, float b) { return a + b; });
  else if (posts[0].reduce == Reduce::max_i64)
    reduce_range<int64_t>(posts, cut(slice), cut(slice + 1),
                          [](int64_t a, int64_t b) { return std::max(a, b); });
  else
    reduce_range<int64_t>(posts, cut(slice), cut(slice + 1),
                          [](int64_t a, int64_t b) { return std::min(a, b); });
}

void copy_bytes(void *to, const void *from, int64_t bytes) {
  if (bytes > 0)
    std::memcpy(to, from, static_cast<size_t>(bytes));
}

void all_gather_slice(const std::vector<Post> &posts, int64_t slice) {
  const Post &mine = posts[static_cast<size_t>(slice)];
  int64_t total = 0;
  for (size_t m = 0; m < posts.size(); ++m) {
    mine.counts_out[m] = posts[m].count;
    total += posts[m].count;
  }
  if (total > mine.max_rows)
    throw RuntimeError(
        fmt::format("all_gather {}: got {} rows from all members, expected at most {} (the plan's maximum)",
                    mine.site.name, total, mine.max_rows));
  for (size_t p = 0; p < mine.parts.size(); ++p) {
    auto *output = static_cast<std::byte *>(mine.parts[p].output);
    for (const Post &post : posts) {
      int64_t bytes = post.count * post.parts[p].row_bytes;
      copy_bytes(output, post.parts[p].input, bytes);
      output += bytes;
    }
  }
}

void reduce_scatter_slice(const std::vector<Post> &posts, int64_t slice) {
  const Post &mine = posts[static_cast<size_t>(slice)];
  int64_t first = std::accumulate(mine.counts.begin(), mine.counts.begin() + slice, int64_t{0}) * mine.count;
  int64_t count = mine.counts[static_cast<size_t>(slice)] * mine.count;
  auto *output = static_cast<float *>(mine.output);
  if (count > 0)
    std::copy_n(static_cast<const float *>(posts[0].input) + first, count, output);
  for (size_t m = 1; m < posts.size(); ++m) {
    const float *input = static_cast<const float *>(posts[m].input) + first;
    for (int64_t i = 0; i < count; ++i)
      output[i] += input[i];
  }
}

int64_t all_to_all_slice(const std::vector<Post> &posts, int64_t slice) {
  const Post &mine = posts[static_cast<size_t>(slice)];
  int64_t total = 0;
  for (size_t m = 0; m < posts.size(); ++m) {
    mine.counts_out[m] = posts[m].counts[static_cast<size_t>(slice)];
    total += mine.counts_out[m];
  }
  if (static_cast<int64_t>(mine.output_bytes->size()) < total)
    mine.output_bytes->resize(static_cast<size_t>(total));
  std::byte *output = mine.output_bytes->data();
  for (const Post &post : posts) {
    int64_t skip = std::accumulate(post.counts.begin(), post.counts.begin() + slice, int64_t{0});
    int64_t bytes = post.counts[static_cast<size_t>(slice)];
    copy_bytes(output, static_cast<const std::byte *>(post.input) + skip, bytes);
    output += bytes;
  }
  return output - mine.output_bytes->data();
}

const char *name_of(Kind kind) {
  switch (kind) {
  case Kind::all_reduce:
    return "all_reduce";
  case Kind::all_gather:
    return "all_gather";
  case Kind::reduce_scatter:
    return "reduce_scatter";
  case Kind::all_to_all:
    return "all_to_all";
  case Kind::barrier:
    return "barrier";
  }
  return "";
}

} // namespace

int64_t run_slice(const std::vector<Post> &posts, int64_t slice) {
  switch (posts[0].kind) {
  case Kind::all_reduce:
    all_reduce_slice(posts, slice);
    return 0;
  case Kind::all_gather:
    all_gather_slice(posts, slice);
    return 0;
  case Kind::reduce_scatter:
    reduce_scatter_slice(posts, slice);
    return 0;
  case Kind::all_to_all:
    return all_to_all_slice(posts, slice);
  case Kind::barrier:
    return 0;
  }
  return 0;
}

std::string Post::text() const {
  std::string what = name_of(kind);
  if (!site.op.empty() && site.op != what)
    what = fmt::format("{} ({})", site.op, what);
  if (kind == Kind::all_reduce)
    return fmt::format("{} of {} {}", what, count,
                       reduce == Reduce::sum_f32   ? "f32 (sum)"
                       : reduce == Reduce::max_i64 ? "i64 (max)"
                                                   : "i64 (min)");
  if (kind == Kind::all_gather) {
    std::vector<int64_t> bytes;
    for (const GatherPart &part : parts)
      bytes.push_back(part.row_bytes);
    return fmt::format("{} of rows of [{}] bytes", what, fmt::join(bytes, ", "));
  }
  if (kind == Kind::reduce_scatter)
    return fmt::format("{} of [{}] rows of {} f32", what, fmt::join(counts, ", "), count);
  return what;
}

std::string mismatch(const Post &post, const Post &other) {
  if (post.kind != other.kind || post.site.op != other.site.op)
    return "different collectives";
  switch (post.kind) {
  case Kind::all_reduce:
    if (post.reduce != other.reduce)
      return "different reductions";
    return post.count != other.count ? "different element counts" : "";
  case Kind::all_gather: {
    bool equal =
        std::equal(post.parts.begin(), post.parts.end(), other.parts.begin(), other.parts.end(),
                   [](const GatherPart &a, const GatherPart &b) { return a.row_bytes == b.row_bytes; });
    return equal ? "" : "different row sizes";
  }
  case Kind::reduce_scatter:
    if (post.count != other.count)
      return "different row sizes";
    return std::equal(post.counts.begin(), post.counts.end(), other.counts.begin(), other.counts.end())
               ? ""
               : "different row counts";
  case Kind::all_to_all:
  case Kind::barrier:
    return "";
  }
  return "";
}

} // namespace paratope::comm::inproc
