package render_test

import (
	"fmt"
	"os"

	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
)

func ExampleTable() {
	rounds := func(values ...float64) (all []result.Round) {
		for _, v := range values {
			all = append(all, result.Round{result.Throughput: v})
		}
		return all
	}
	report := result.Report{
		Machine: result.Machine{CPU: "Z80", Cores: 1, Kernel: "CP/M", Go: "go1.26", Redis: "7.0"}, Rounds: 3,
		Scenarios: []result.Scenario{{
			Name: "hot", Title: "One hot key", Axis: "goroutines", Headline: result.Throughput, Cells: []result.Cell{
				{Contender: "leasehold", Point: "64", Rounds: rounds(900_000, 1_200_000, 1_000_000)},
				{Contender: "semaphore", Point: "64", Rounds: rounds(1_100_000, 1_300_000, 1_200_000)},
			},
		}},
	}
	if err := render.Table(os.Stdout, report); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Z80, 1 cores, CP/M, go1.26, Redis 7.0
	// medians of 3 rounds, ± half of the spread; it took 0s
	//
	// hot: One hot key (loopback)
	// throughput by goroutines  64
	//   leasehold               1 M/s ±15%
	//   semaphore               1.2 M/s ±8%
	// at 64 goroutines  throughput
	//   leasehold       1 M/s
	//   semaphore       1.2 M/s
}
