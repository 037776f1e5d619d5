// SPDX-License-Identifier: Apache-2.0
#include "dsl/toml/find.h"

#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dsl/diagnostic/nearest.h"
#include "dsl/spec/check.h"

namespace paratope {

namespace fs = std::filesystem;

namespace {

bool is_file(const fs::path &path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

} // namespace

std::vector<std::string> search_from(const std::string &file, std::vector<std::string> search) {
  std::error_code failed;
  fs::path folder = fs::absolute(file, failed).parent_path();
  while (!failed && !folder.empty()) {
    for (const LibraryKind &kind : {layout_library, model_library, machine_library}) {
      if (fs::is_directory(folder / kind.folder, failed)) {
        search.push_back(folder.string());
        return search;
      }
      failed.clear();
    }
    if (folder == folder.parent_path())
      break;
    folder = folder.parent_path();
  }
  return search;
}

std::vector<std::pair<std::string, std::string>> list_library(const LibraryKind &kind,
                                                              const std::vector<std::string> &search) {
  std::map<std::string, std::string> found;
  for (const std::string &directory : search) {
    std::error_code failed;
    for (fs::directory_iterator it(fs::path(directory) / kind.folder, failed), end; !failed && it != end;
         it.increment(failed))
      if (it->path().extension() == ".toml")
        found.try_emplace(it->path().stem().string(), it->path().string());
  }
  return {found.begin(), found.end()};
}

std::optional<std::string> find_named(const LibraryKind &kind, const std::string &name,
                                      const SourceRange &where, const std::vector<std::string> &search,
                                      Diagnostics &diagnostics) {
  const std::string code = fmt::format("unknown-{}", kind.noun);
  if (name.find('/') != std::string::npos || name.ends_with(".toml")) {
    const std::string path = mentioned_path(where, name);
    if (is_file(path))
      return path;
    diagnostics.error(code, where, fmt::format("no such {} file: {}", kind.noun, path));
    return std::nullopt;
  }
  if (!name.empty()) {
    for (const std::string &directory : search)
      if (fs::path path = fs::path(directory) / kind.folder / (name + ".toml"); is_file(path))
        return path.string();
    if (const std::string beside = mentioned_path(where, name + ".toml"); is_file(beside))
      return beside;
  }
  std::vector<std::string> names;
  for (const auto &[listed, path] : list_library(kind, search))
    names.push_back(listed);
  Diagnostic &unknown = diagnostics.error(code, where, fmt::format("there is no {} '{}'", kind.noun, name));
  if (auto guess = nearest(name, names))
    unknown.fix = fmt::format("write \"{}\"", *guess);
  if (!names.empty())
    unknown.notes.push_back({fmt::format("there are {}", fmt::join(names, ", ")), {}});
  else
    unknown.notes.push_back(
        {fmt::format("no folder {} in {}", kind.folder,
                     search.empty() ? "the search directories" : fmt::format("{}", fmt::join(search, ", "))),
         {}});
  return std::nullopt;
}

} // namespace paratope
