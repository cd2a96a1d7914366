#include "watcher.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace ballast::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kBatchTokens = 512;  // fed at once, when so much is waiting
constexpr int kReads = 16;             // of the input between two looks at signals, saves and metrics
constexpr size_t kMostWaiting = size_t{1}
                                << 16;  // lines of a pipe, with --max-lag: what they take, not their bytes
constexpr auto kSkipTime = std::chrono::seconds(1);  // likewise, while lines are skipped
constexpr int kPollMs = 100;                         // between looks at a file that does not grow
constexpr int64_t kEpisode = 20;  // lines without an alarm after which one is explained again

double Rounded(double x) { return std::round(x * 1e4) / 1e4; }
std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Status Watcher::Open() {
  const bool resume = files_.image.has_value();
  if (resume) BALLAST_RETURN_IF_ERROR(Restore(*files_.image));
  files_.image.reset();
  BALLAST_RETURN_IF_ERROR(OpenInput(resume));
  progress_.input = options_.paths.log;
  // Before the first result, so that a kill before the first save finds a length to cut back to.
  progress_.out_closed = false;
  dirty_ = true;
  BALLAST_RETURN_IF_ERROR(SaveIfDue(true));
  if (options_.explain_tokens > 0) {
    BALLAST_ASSIGN_OR_RETURN(explainer_, WatchExplainer::Create(loaded_, options_.explain_tokens));
  }
  return Status();
}

Status Watcher::Restore(const std::string& image) {
  const WatchPaths& paths = options_.paths;
  BALLAST_RETURN_IF_ERROR(DecodeWatchState(image, model_, &progress_, &judge_, &stream_).In(paths.state));
  if (progress_.input != paths.log) {
    return Status::Expected(Code::kInput, paths.state, "the state of " + paths.log,
                            "that of " + progress_.input, "one --state FILE for each log");
  }
  std::string note;
  BALLAST_RETURN_IF_ERROR(files_.output.GoOnAt(
      {progress_.out_device, progress_.out_inode, progress_.out_bytes, progress_.lines, progress_.out_closed},
      &note));
  if (!note.empty()) Warn(note);
  Note(fmt::format("[goes on after line {} of {}]", progress_.lines, paths.log));
  return Status();
}

Status Watcher::OpenInput(bool resume) {
  struct stat info {};
  int fd = STDIN_FILENO;
  const std::string& log = options_.paths.log;
  const bool standard = log == "-";
  const bool there = (standard ? fstat(fd, &info) : stat(log.c_str(), &info)) == 0;
  const bool pipe = standard || (there && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)));
  if (!pipe) {
    std::optional<LogPlace> place;
    if (resume) place = progress_.place;
    BALLAST_ASSIGN_OR_RETURN(source_, LogSource::OpenFile(log, options_.source, place));
    return Status();
  }
  if (standard && there && S_ISDIR(info.st_mode)) {
    return Status::Expected(Code::kInput, "stdin", "a pipe or a file", "a folder");
  }
  if (!standard) {
    BALLAST_ASSIGN_OR_RETURN(fd, OpenToRead(log));
  }
  source_ =
      LogSource::OpenPipe(fd, standard ? "stdin" : log, options_.source, resume ? progress_.place.offset : 0);
  return Status();
}

Status Watcher::Run() {
  Status status = Loop();
  const bool stopped = status.ok() || status.code() == Code::kInterrupted;
  if (!stopped || files_.output.failed()) return status;  // what was saved last still holds
  if (source_->descriptor() >= 0 && source_->Held() > 0) {
    // A pipe cannot be read again: what was read and not scored is told, not hidden.
    pending_ = Line(Json{{"event", "stopped"}, {"unscored_bytes", source_->Held()}});
    if (Status written = files_.output.Write(std::exchange(pending_, "")); !written.ok()) return written;
  }
  progress_.out_closed = true;
  dirty_ = true;
  if (Status saved = SaveIfDue(true); !saved.ok()) return saved;
  WriteMetrics(true);
  return status;
}

Status Watcher::Loop() {
  while (true) {
    if (Interrupted()) return Status(Code::kInterrupted, "interrupted");
    BALLAST_ASSIGN_OR_RETURN(bool busy, Shed());
    if (!busy) {
      BALLAST_ASSIGN_OR_RETURN(busy, Gather());
    }
    if (!batch_.empty()) {
      busy = true;
      BALLAST_RETURN_IF_ERROR(ScoreBatch());
    }
    if (!busy && source_->ended()) return Status();
    BALLAST_RETURN_IF_ERROR(SaveIfDue(false));
    WriteMetrics(false);
    if (!busy) Wait();
  }
}

void Watcher::Wait() {
  const int fd = source_->descriptor();
  WaitReadable(fd, fd >= 0 ? 1000 : kPollMs);
}

// Takes the lines of the next batch, as many as are there; after kReads it is enough, since a line may be
// endless. False: nothing more is there now.
Result<bool> Watcher::Gather() {
  int64_t tokens = 0;
  for (int reads = 0; tokens < kBatchTokens;) {
    if (source_->empty()) {
      if (reads++ == kReads) break;
      BALLAST_ASSIGN_OR_RETURN(const bool more, source_->Fill());
      if (source_->empty() && !more) return false;
      continue;
    }
    batch_.push_back(source_->Take());
    encoded_.push_back(scorer_.Encode(batch_.back().text));
    tokens += static_cast<int64_t>(encoded_.back().ids.size());
  }
  return true;
}

// By rule: when more than --max-lag bytes wait, or more lines than memory is for, the oldest whole lines go
// unread until no more do. True: that took so long that it goes on after a look at what else is due.
Result<bool> Watcher::Shed() {
  if (options_.max_lag == 0) return false;
  const Clock::time_point end = Clock::now() + kSkipTime;
  const auto go_on = [end] { return !Interrupted() && Clock::now() < end; };
  // A pipe shows what it holds only when it is read.
  const auto within = [this] {
    return source_->Held() <= options_.max_lag && source_->queued_lines() <= kMostWaiting;
  };
  while (source_->descriptor() >= 0 && within() && go_on()) {
    BALLAST_ASSIGN_OR_RETURN(const bool more, source_->Fill());
    if (!more) break;
  }
  if (source_->Lag() <= options_.max_lag && source_->queued_lines() <= kMostWaiting) return false;
  BALLAST_ASSIGN_OR_RETURN(const LogSource::Skipped skipped,
                           source_->SkipTo(options_.max_lag, kMostWaiting, go_on));
  if (skipped.lines == 0) return skipped.stopped;
  ReportEvents(skipped.events, skipped.from);
  pending_ += Line(Json{{"event", "skipped"},
                        {"line", progress_.lines + 1},
                        {"lines", skipped.lines},
                        {"bytes", skipped.bytes},
                        {"from_offset", skipped.from},
                        {"to_offset", skipped.to},
                        {"max_lag", options_.max_lag}});
  progress_.lines += skipped.lines;
  progress_.bytes += skipped.bytes;
  progress_.skipped_lines += skipped.lines;
  progress_.skipped_bytes += skipped.bytes;
  dirty_ = true;
  BALLAST_RETURN_IF_ERROR(files_.output.Write(std::exchange(pending_, "")));
  return skipped.stopped;
}

Status Watcher::ScoreBatch() {
  marks_.Refresh();
  BALLAST_ASSIGN_OR_RETURN(const std::vector<LineSurprise> surprises, scorer_.Score(encoded_));
  int64_t lag = source_->Lag();
  for (const LogLine& line : batch_) lag += line.bytes;
  for (size_t i = 0; i < batch_.size(); ++i) {
    lag -= batch_[i].bytes;
    BALLAST_RETURN_IF_ERROR(Report(batch_[i], surprises[i], lag));
  }
  // One write for all: a failed one leaves the saved state where it was.
  BALLAST_RETURN_IF_ERROR(files_.output.Write(std::exchange(pending_, "")));
  batch_.clear();
  encoded_.clear();
  dirty_ = true;
  return Status();
}

void Watcher::ReportEvents(const std::vector<LogEvent>& events, int64_t offset) {
  for (const LogEvent& event : events) {
    pending_ += Line(Json{{"event", event.name},
                          {"line", progress_.lines + 1},
                          {"offset", offset},
                          {"detail", ValidUtf8(event.detail)}});
  }
}

Status Watcher::Report(const LogLine& line, const LineSurprise& surprise, int64_t lag) {
  ReportEvents(line.events, line.offset);
  const bool normal = marks_.size() > 0 && marks_.Has(TemplateHash(line.text));
  const Judgement j = judge_.Judge(line.text, surprise, normal);
  ++progress_.lines;
  progress_.bytes += line.bytes;
  const bool first = j.alarm && progress_.since_alarm >= kEpisode;
  progress_.since_alarm = j.alarm ? 0 : progress_.since_alarm + 1;
  if (j.alarm) ++progress_.alarms;
  if (options_.only_alarms && !j.alarm) return Status();
  const double scored = static_cast<double>(line.text.size() + 1);
  Json out = {{"line", progress_.lines},
              {"offset", line.offset},
              {"bytes", line.bytes},
              {"bits", Rounded(surprise.bits)},
              {"bits_per_byte", Rounded(surprise.bits / scored)},
              {"surprise", Rounded(j.surprise)},
              {"seen", j.seen},
              {"words", Rounded(j.words)},
              {"score", Rounded(j.score)},
              {"z", Rounded(j.z)},
              {"alarm", j.alarm}};
  if (normal) out["normal"] = true;
  if (line.truncated) out["truncated"] = true;
  if (line.partial) out["partial"] = true;
  if (explainer_ != nullptr && first) {
    BALLAST_ASSIGN_OR_RETURN(const std::string sentence, explainer_->Explain(line.text));
    if (!sentence.empty()) out["explanation"] = sentence;
  }
  out["input_lag_bytes"] = lag;
  out["text"] = ValidUtf8(line.text);
  pending_ += Line(out);
  return Status();
}

Status Watcher::SaveIfDue(bool now) {
  if (options_.paths.state.empty() || !dirty_) return Status();
  const Clock::time_point time = Clock::now();
  if (!now && time - saved_ < std::chrono::duration<double>(options_.save_every)) return Status();
  BALLAST_RETURN_IF_ERROR(files_.output.Sync());
  progress_.place = source_->place();
  progress_.out_device = files_.output.device();
  progress_.out_inode = files_.output.inode();
  progress_.out_bytes = files_.output.bytes();
  BALLAST_RETURN_IF_ERROR(files_.state.Replace(EncodeWatchState(progress_, judge_, stream_, model_)));
  dirty_ = false;
  saved_ = Clock::now();
  return Status();
}

// Figures that cannot be written do not end the reading of the log.
void Watcher::WriteMetrics(bool now) {
  const Clock::time_point time = Clock::now();
  if (options_.paths.metrics.empty() || (!now && time - measured_ < std::chrono::seconds(1))) return;
  measured_ = time;
  std::string text;
  const auto add = [&text](const char* name, const char* type, const char* help, int64_t value) {
    text += fmt::format("# HELP ballast_{0} {1}\n# TYPE ballast_{0} {2}\nballast_{0} {3}\n", name, help, type,
                        value);
  };
  add("input_lag_bytes", "gauge", "Bytes of the log that were not scored yet.", source_->Lag());
  add("input_lines_total", "counter", "Lines of the log, skipped ones included.", progress_.lines);
  add("input_bytes_total", "counter", "Their bytes.", progress_.bytes);
  add("input_dropped_lines_total", "counter", "Lines skipped by --max-lag.", progress_.skipped_lines);
  add("input_dropped_bytes_total", "counter", "Their bytes.", progress_.skipped_bytes);
  add("watch_alarms_total", "counter", "Lines that were alarms.", progress_.alarms);
  add("stream_position_tokens", "gauge", "Tokens the model has read.", stream_.position());
  if (text == metrics_text_) return;
  const Status written = WriteFileAtomically(options_.paths.metrics, text);
  if (written.ok()) metrics_text_ = text;
  if (!written.ok() && metrics_ok_) Warn("--metrics: " + written.message());
  metrics_ok_ = written.ok();
}

}  // namespace ballast::app
