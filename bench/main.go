package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/scenario"
)

func main() {
	if harness.IsChild() {
		if err := harness.Child(scenario.Services()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	server, err := harness.StartServer()
	if err != nil {
		panic(err)
	}
	stage, err := harness.NewStage(server, harness.Quick)
	if err != nil {
		panic(err)
	}
	defer stage.Close()
	ss, err := scenario.Choose(os.Args[1:])
	if err != nil {
		panic(err)
	}
	for _, s := range ss {
		begin := time.Now()
		r, err := stage.Run(ctx, s, contender.All(), func(string, harness.Point, time.Duration, string, int, int) {})
		if err != nil {
			panic(err)
		}
		for _, c := range r.Cells {
			fmt.Printf("%-10s %5s %-20s %s", s.Name, c.Point, c.Contender, c.Failure)
			for _, round := range c.Rounds {
				b, _ := json.Marshal(round)
				fmt.Printf(" %s", b)
				break
			}
			fmt.Println()
		}
		fmt.Println(time.Since(begin))
	}
}
