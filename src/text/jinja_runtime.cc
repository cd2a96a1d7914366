#include "text/jinja_runtime.h"

#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_print.h"
#include "text/jinja_strings.h"

namespace ballast {

using Kind = JinjaValue::Kind;
using Flavor = JinjaListRep::Flavor;

std::string_view JinjaTypeName(const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      switch (static_cast<JinjaListRep*>(value.rep())->flavor) {
        case Flavor::kList:
          return "list";
        case Flavor::kTuple:
          return "tuple";
        default:
          return "generator";
      }
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    default:
      return "function";
  }
}

std::string JinjaQuote(std::string_view text) {
  std::string out = "'";
  for (size_t at = 0; at < text.size() && at < 60;) {
    const size_t bytes = JinjaCharBytes(text, at);
    const unsigned char c = static_cast<unsigned char>(text[at]);
    if (bytes == 1 && (c < 0x20 || c >= 0x7F)) {
      out += '?';
    } else {
      out.append(text.substr(at, bytes));
    }
    at += bytes;
  }
  return out + (text.size() > 60 ? "..." : "") + "'";
}

JinjaValue JinjaRuntime::Fail(std::string_view message) {
  if (!ok()) return {};
  status_ =
      Status(Code::kInput, "chat template, line " + std::to_string(line_) + ": " + std::string(message));
  return {};
}

JinjaValue JinjaRuntime::Refuse(std::string_view message) {
  if (!ok()) return {};
  status_ =
      Status(Code::kModel, "chat template, line " + std::to_string(line_) + ": " + std::string(message));
  return {};
}

JinjaValue JinjaRuntime::Raise(std::string message) {
  if (ok()) status_ = Status(Code::kInput, std::move(message));
  return {};
}

JinjaValue JinjaRuntime::TypeError(std::string_view what, const JinjaValue& value) {
  if (value.Is(Kind::kUndefined)) return Fail(value.UndefinedMessage());
  return Fail(std::string(what) + ", not " + std::string(JinjaTypeName(value)));
}

bool JinjaRuntime::Charge(int64_t steps) {
  if (!ok()) return false;
  steps_ += steps;
  if (steps_ > limits_.max_steps) {
    Fail("expected at most " + std::to_string(limits_.max_steps) + " steps, found more");
  }
  if (ok() && meter_.live() + static_cast<size_t>(buffered_) > limits_.max_memory_bytes) Fits(0);
  return ok();
}

bool JinjaRuntime::Fits(size_t bytes) {
  const size_t used = meter_.live() + static_cast<size_t>(buffered_);
  if (used > limits_.max_memory_bytes || bytes > limits_.max_memory_bytes - used) {
    Fail("expected at most " + std::to_string(limits_.max_memory_bytes) + " bytes of values, found more");
  }
  return Work(bytes);
}

JinjaValue JinjaRuntime::Text(MarkedText text) {
  Fits(text.MemoryBytes());
  return JinjaValue::Marked(std::move(text), &meter_);
}

JinjaValue JinjaRuntime::List(JinjaValue::Items items, JinjaListRep::Flavor flavor) {
  Fits(items.size() * sizeof(JinjaValue));
  return JinjaValue::Adopt(Kind::kList, new JinjaListRep(std::move(items), flavor, &meter_));
}

JinjaValue JinjaRuntime::Undefined(std::string message) {
  return JinjaValue::Adopt(Kind::kUndefined,
                           new JinjaStringRep(MarkedText(std::move(message), true), &meter_));
}

bool JinjaRuntime::Truth(const JinjaValue& value) const {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.AsInt() != 0;
    case Kind::kFloat:
      return value.AsDouble() != 0;
    case Kind::kString:
      return !value.str().empty();
    case Kind::kList:
      return !value.items().empty() || static_cast<JinjaListRep*>(value.rep())->flavor == Flavor::kGenerator;
    case Kind::kDict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

bool JinjaRuntime::Equals(const JinjaValue& a, const JinjaValue& b) {
  const int64_t have = std::max<int64_t>(0, limits_.max_steps - steps_) + 1;
  int64_t work = have;
  const bool equal = JinjaEquals(a, b, &work);
  Charge(have - work - 1);
  return equal;
}

int JinjaRuntime::Order(const JinjaValue& a, const JinjaValue& b, std::string_view op) {
  if (!Charge(1)) return 0;
  if (a.IsNumber() && b.IsNumber()) {
    if (!a.Is(Kind::kFloat) && !b.Is(Kind::kFloat)) return a.AsInt() < b.AsInt() ? -1 : a.AsInt() > b.AsInt();
    return a.AsDouble() < b.AsDouble() ? -1 : a.AsDouble() > b.AsDouble();
  }
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    Work(std::min(a.str().size(), b.str().size()));
    const int order = a.str().compare(b.str());
    return order < 0 ? -1 : order > 0;
  }
  if (a.Is(Kind::kList) && b.Is(Kind::kList)) {
    const size_t both = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < both && ok(); ++i) {
      if (!Equals(a.items()[i], b.items()[i])) return Order(a.items()[i], b.items()[i], op);
    }
    return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size();
  }
  if (a.Is(Kind::kUndefined)) {
    Fail(a.UndefinedMessage());
  } else if (b.Is(Kind::kUndefined)) {
    Fail(b.UndefinedMessage());
  } else {
    Fail("'" + std::string(op) + "' not supported between instances of '" + std::string(JinjaTypeName(a)) +
         "' and '" + std::string(JinjaTypeName(b)) + "'");
  }
  return 0;
}

bool JinjaRuntime::Contains(const JinjaValue& container, const JinjaValue& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.Is(Kind::kString)) {
        Fail("'in <string>' requires string as left operand, not " + std::string(JinjaTypeName(item)));
        return false;
      }
      Work(container.str().size());
      return ok() && JinjaFind(container.str(), item.str()) != std::string::npos;
    case Kind::kDict:
      if (item.Is(Kind::kString)) Work(item.str().size());
      return container.dict().Find(item) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kList:
      for (const JinjaValue& one : container.items()) {
        if (!Charge(1)) return false;
        if (Equals(one, item)) return true;
      }
      return false;
    default:
      TypeError("expected something iterable after 'in'", container);
      return false;
  }
}

JinjaValue::Items JinjaRuntime::Iterate(const JinjaValue& value) {
  JinjaValue::Items out;
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kList: {
      auto* rep = static_cast<JinjaListRep*>(value.rep());
      if (rep->flavor == Flavor::kGenerator) {
        out.swap(rep->items);
      } else if (Fits(rep->items.size() * sizeof(JinjaValue))) {
        out = rep->items;
      }
      break;
    }
    case Kind::kDict:
      if (Fits(value.dict().entries.size() * sizeof(JinjaValue))) {
        for (const auto& entry : value.dict().entries) out.push_back(entry.first);
      }
      break;
    case Kind::kString: {
      const std::string& text = value.str();
      if (!CharWork(text.size())) break;
      if (!Fits(JinjaCountChars(text) * (sizeof(JinjaStringRep) + sizeof(JinjaValue)))) break;
      for (size_t at = 0; at < text.size() && ok();) {
        const size_t bytes = JinjaCharBytes(text, at);
        out.push_back(Text(value.text().Sub(at, bytes)));
        at += bytes;
      }
      break;
    }
    default:
      Fail("'" + std::string(JinjaTypeName(value)) + "' object is not iterable");
  }
  return out;
}

int64_t JinjaRuntime::Length(const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      if (static_cast<JinjaStringRep*>(value.rep())->ascii) return static_cast<int64_t>(value.str().size());
      CharWork(value.str().size());
      return static_cast<int64_t>(JinjaCountChars(value.str()));
    case Kind::kList:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    default:
      Fail("object of type '" + std::string(JinjaTypeName(value)) + "' has no len()");
      return 0;
  }
}

MarkedText JinjaRuntime::Str(const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return MarkedText();
    case Kind::kNone:
      return MarkedText("None");
    case Kind::kBool:
      return MarkedText(value.AsBool() ? "True" : "False");
    case Kind::kInt:
      return MarkedText(std::to_string(value.AsInt()));
    case Kind::kFloat:
      return MarkedText(JinjaFloatText(value.AsDouble()));
    case Kind::kString:
      return Fits(value.str().size()) ? value.text() : MarkedText();
    default:
      return JinjaRepr(this, value);
  }
}

std::vector<const JinjaValue*> JinjaRuntime::Bind(std::string_view function, const JinjaArgs& args,
                                                  std::initializer_list<std::string_view> parameters) {
  std::vector<const JinjaValue*> bound(parameters.size(), nullptr);
  if (args.positional.size() > parameters.size()) {
    Fail(std::string(function) + "() takes at most " + std::to_string(parameters.size()) +
         " arguments, found " + std::to_string(args.positional.size()));
    return bound;
  }
  for (size_t i = 0; i < args.positional.size(); ++i) bound[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto at = std::find(parameters.begin(), parameters.end(), name);
    const size_t i = at - parameters.begin();
    if (at == parameters.end() || bound[i] != nullptr) {
      Fail(std::string(function) + "() got an unexpected keyword argument " + JinjaQuote(name));
      return bound;
    }
    bound[i] = &value;
  }
  return bound;
}

}  // namespace ballast
