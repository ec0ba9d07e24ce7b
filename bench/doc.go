// The program bench measures leasehold beside other locks on Redis, and beside what memory and Redis allow, in one run: every
// scenario for every contender, in turn, several times. It prints a table and writes a report with plots.
//
//	go run .            a quick look
//	go run . -full      everything
//	go run . -list      what there is to choose from
//
// The packages, each of which knows only those below it:
//
//	scenario, render, claim   what is measured; how it is told; what was promised
//	harness                   servers, child processes, rounds, counting
//	contender, delay, result  who takes part; the network; the numbers and their arithmetic
package main
