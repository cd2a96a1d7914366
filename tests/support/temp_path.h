// Files that tests make.
#ifndef BALLAST_TESTS_SUPPORT_TEMP_PATH_H_
#define BALLAST_TESTS_SUPPORT_TEMP_PATH_H_

#include <string>
#include <string_view>

namespace ballast::testing {

// A path for `name` in a folder of this process, which goes with the process.
std::string TempPath(std::string_view name);

}  // namespace ballast::testing

#endif  // BALLAST_TESTS_SUPPORT_TEMP_PATH_H_
