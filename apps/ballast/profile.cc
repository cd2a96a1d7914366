#include "profile.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "cache/policy.h"

namespace ballast::app {
namespace {

using nlohmann::json;

constexpr int kProfileVersion = 1;
constexpr size_t kMostProfile = 1 << 20;  // bytes

struct Profile {
  std::string sha256;
  int64_t context = 0;
  int64_t sinks = 0;
};

Result<Profile> ReadProfile(const std::string& path) {
  const auto bad = [&](std::string_view expected, std::string_view found) {
    return Status::Expected(Code::kInput, path, expected, found);
  };
  BALLAST_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(path, kMostProfile));
  const json document = json::parse(bytes, nullptr, false);
  try {
    if (!document.is_object() || document.at("ballast_profile") != kProfileVersion) {
      return bad("a profile that calibrate wrote", "something else");
    }
    Profile profile;
    profile.sha256 = document.at("model").at("sha256").get<std::string>();
    for (const char* name : {"context", "sinks"}) {
      if (!document.at(name).is_number_integer())
        return bad(fmt::format("a whole number of {}", name), document.at(name).dump());
    }
    profile.context = document.at("context").get<int64_t>();
    profile.sinks = document.at("sinks").get<int64_t>();
    const Policy policy = profile.sinks == 0 ? Policy::kWindow : Policy::kSinks;
    const Status fits = MakePlan(policy, profile.context, profile.sinks).status();
    if (!fits.ok()) return bad("a capacity and sinks that a cache can have", fits.message());
    return profile;
  } catch (const json::exception&) {
    return bad("a profile that calibrate wrote", "something else");
  }
}

Result<std::string> ModelHash(const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(const TensorFile file, TensorFile::Open(path));
  return HashModel(file);
}

}  // namespace

void AddProfileFlags(CLI::App& app, ProfileFlags& flags) {
  AddFlag(app, "--profile", "PROFILE", flags.path,
          "What calibrate found for this model (default: the file beside it, if any)")
      ->type_name("FILE")
      ->group("Cache");
  AddFlag(app, "--no-profile", "NO_PROFILE", flags.off, "Do not read it")->group("Cache");
}

std::string ProfilePath(const std::string& model) {
  struct stat info {};
  const bool folder = stat(model.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  return folder ? model + "/ballast.json" : model + ".ballast.json";
}

Status ExplainProfile(const ProfileFlags& profile, const Status& status) {
  if (profile.applied.empty() || !status.message().starts_with("--context")) return status;
  return Status(
      status.code(), status.message(),
      fmt::format("it is the profile {} that asks for it: --no-profile goes on without, -c C with another",
                  profile.applied));
}

Status ApplyProfile(ProfileFlags& profile, CommonFlags& flags) {
  if (profile.off) return Status();
  const Result<std::string> model = FindModel(flags);
  if (!model.ok()) return Status();  // loading says it better
  const std::string path = profile.path.empty() ? ProfilePath(*model) : profile.path;
  if (profile.path.empty() && access(path.c_str(), F_OK) != 0) return Status();
  struct stat info {};
  if (profile.path.empty() && stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) {
    Warn("profile ignored: " + path + ": expected a file, found a pipe");  // nobody asked to wait for it
    return Status();
  }
  const Result<Profile> read = ReadProfile(path);
  if (!read.ok()) {
    if (!profile.path.empty() && access(path.c_str(), F_OK) != 0) return read.status();
    Warn("profile ignored: " + read.status().message());
    return Status();
  }
  const bool sinks_policy = flags.policies.empty() || flags.policies.back() == "sinks";
  const bool takes_context = flags.context == 0;
  const bool takes_sinks = !flags.sinks_given && !flags.pin_system;
  if (!sinks_policy || (!takes_context && !takes_sinks)) return Status();  // flags win
  const Result<std::string> hash = ModelHash(*model);
  if (hash.status().code() == Code::kInterrupted) return hash.status();
  if (!hash.ok()) return Status();  // loading says it better
  if (*hash != read->sha256) {
    Warn(fmt::format("profile ignored: {}: expected one of this model (sha256 {}...), found {}...", path,
                     hash->substr(0, 12), ValidUtf8(read->sha256.substr(0, 12))));
    return Status();
  }
  const int64_t context = takes_context ? read->context : flags.context;
  const int64_t sinks = takes_sinks ? read->sinks : flags.sinks;
  if (!flags.pin_system && sinks >= context) {
    Warn(fmt::format("profile ignored: {}: {} sinks do not fit into {} tokens", path, sinks, context));
    return Status();
  }
  if (takes_context) profile.applied = path;
  flags.context = context;
  flags.sinks = sinks;
  Note(fmt::format("[profile {}: {}{}]", path, takes_context ? fmt::format("-c {}", context) : "",
                   takes_sinks ? fmt::format("{}--sinks {}", takes_context ? " " : "", sinks) : ""));
  return Status();
}

}  // namespace ballast::app
