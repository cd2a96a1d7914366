// What this machine can do at most: the limits that every measured speed is held against.
// Thread safety: the pool's caller. Each call takes up to a second.
#ifndef BALLAST_KERNELS_MACHINE_H_
#define BALLAST_KERNELS_MACHINE_H_

#include "base/threads.h"

namespace ballast {

// Bytes per second that all threads of `pool` read together from memory too large for any cache. Best of
// several passes; 0 when the machine has not the memory to measure it.
double MeasureReadBandwidth(ThreadPool& pool);

// Multiply-adds of bytes per second (one product and its sum: 2 operations) that all threads reach together
// in registers, by the instructions that the matrix product uses on this instruction set. 0: not known for
// it.
double MeasureByteMultiplyAdds(ThreadPool& pool);

// Pauses of 1 ms and more per second and thread in which all threads do nothing but read the clock, for a
// second: what others (programs, the host of a virtual machine) take away. Latencies cannot be steadier.
struct Pauses {
  double per_second = 0;  // mean over the threads
  double longest_ms = 0;
};
Pauses MeasurePauses(ThreadPool& pool);

}  // namespace ballast

#endif  // BALLAST_KERNELS_MACHINE_H_
