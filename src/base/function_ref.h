// FunctionRef: a callable passed down a call, not kept. Two pointers, never an allocation, unlike
// std::function.
#ifndef BALLAST_BASE_FUNCTION_REF_H_
#define BALLAST_BASE_FUNCTION_REF_H_

#include <memory>
#include <type_traits>
#include <utility>

namespace ballast {

template <class Signature>
class FunctionRef;

// REQUIRES: the callable outlives the reference, as an argument does the call it is made for.
template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<Result, F&, Args...>)
      FunctionRef(F&& callable)  // NOLINT(*-explicit-constructor,bugprone-forwarding-reference-overload):
                                 // lambdas convert
      : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* f, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(f))(std::forward<Args>(args)...);
        }) {}
  Result operator()(Args... args) const { return call_(callable_, std::forward<Args>(args)...); }

 private:
  void* callable_;
  Result (*call_)(void*, Args...);
};

}  // namespace ballast

#endif  // BALLAST_BASE_FUNCTION_REF_H_
