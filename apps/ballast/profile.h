// The profile of a model: what `calibrate` found to be enough for it, in a small JSON file that `run`, `chat`
// and `serve` read.
//
// {"ballast_profile":1,"model":{"name","sha256"},"context":C,"sinks":N, ...}; other keys tell how it was
// made. It lies beside the model: MODEL.gguf.ballast.json, or ballast.json in a Hugging Face folder.
#ifndef BALLAST_APPS_PROFILE_H_
#define BALLAST_APPS_PROFILE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "app.h"

namespace ballast::app {

// --profile FILE, --no-profile
struct ProfileFlags {
  std::string path;  // empty: beside the model
  bool off = false;
  std::string applied{};  // the profile whose capacity is in force; empty: none
};
void AddProfileFlags(CLI::App& app, ProfileFlags& flags);

std::string ProfilePath(const std::string& model);

// Completes -c and --sinks from the model's profile, where neither they nor another policy than sinks were
// asked for, and says so on stderr. A profile that is damaged or of another model is passed over with one
// warning; only one that --profile named and that is not there is an error (kInput).
Status ApplyProfile(ProfileFlags& profile, CommonFlags& flags);
// Of a stream that could not be made: a capacity that was refused and is the profile's, not the user's, is
// said to be so, and how to go on without it.
Status ExplainProfile(const ProfileFlags& profile, const Status& status);

}  // namespace ballast::app

#endif  // BALLAST_APPS_PROFILE_H_
