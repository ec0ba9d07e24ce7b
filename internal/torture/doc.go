// Package torture runs processes that lock at random, on a topology of Redis to which everything happens that can:
// processes are killed and stopped, ways to the servers delay, lose, cut and swallow, servers hang, are killed, fail over, forget
// scripts, keys, everything. What all processes saw is then held to what is promised:
//
//   - holds exclude each other, readers and writers too, and tokens grow (internal/history, by porcupine);
//   - where a server lost what it had acknowledged, which no lock on it survives, holds that met
//     others are counted, and each is told within a time to live;
//   - every call ends, once the faults do;
//   - a fenced store (Fence), which all of them write to, takes no write that comes too late, and refuses nobody's who is the newest;
//   - at the end nothing is left: no goroutine, no subscription, no key but token counters.
//
// Everything is chosen by a seed, which is printed. The same seed makes the same faults in the same order; who wins which race is up
// to the machine.
//
//	make torture-run TORTURE=cluster MINUTES=30 SEED=7
package torture
