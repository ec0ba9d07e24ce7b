package memlease_test

import (
	"testing"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

// BenchmarkRoundTrip is what one request and its answer cost.
func BenchmarkRoundTrip(b *testing.B) {
	s := memlease.NewServer()
	defer s.Close()
	st := s.Store()
	if _, err := st.Open(b.Context(), "a", func(lease.Event) {}); err != nil {
		b.Fatal(err)
	}
	answered := make(chan struct{})
	done := func(lease.Reply, error) { answered <- struct{}{} }
	r := acquire(1)
	b.ReportAllocs()
	for b.Loop() {
		st.Send(r, done)
		<-answered
	}
}

// BenchmarkManyStores is what a store costs that does nothing, and one request of each.
func BenchmarkManyStores(b *testing.B) {
	for b.Loop() {
		s := memlease.NewServer()
		answers := make(chan struct{}, 1000)
		for i := range 1000 {
			st := s.Store()
			if _, err := st.Open(b.Context(), string(rune('a'+i)), func(lease.Event) {}); err != nil {
				b.Fatal(err)
			}
			st.Send(acquire(1), func(lease.Reply, error) { answers <- struct{}{} })
		}
		for range 1000 {
			<-answers
		}
		s.Close()
	}
}
