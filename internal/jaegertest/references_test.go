package jaegertest

import (
	"fmt"
	"slices"
)

// spanID names a span in any trace.
type spanID struct{ trace, span string }

// childOf says what is wrong with a span whose parent should be that one.
func childOf(s spanView, parent spanID) error {
	var parents []spanID
	for _, r := range s.References {
		if r.RefType == "CHILD_OF" {
			parents = append(parents, spanID{r.TraceID, r.SpanID})
		}
	}
	if !slices.Equal(parents, []spanID{parent}) {
		return fmt.Errorf("%s is CHILD_OF %v, not of %v", s.OperationName, parents, parent)
	}
	return nil
}

// followsFrom says what is wrong with a span that should be linked to those, and to no other.
func followsFrom(s spanView, links ...spanID) error {
	var found []spanID
	for _, r := range s.References {
		if r.RefType == "FOLLOWS_FROM" {
			found = append(found, spanID{r.TraceID, r.SpanID})
		}
	}
	if !slices.Equal(found, links) {
		return fmt.Errorf("%s is FOLLOWS_FROM %v, not %v", s.OperationName, found, links)
	}
	return nil
}

// overlap says what is wrong with two spans that should have been open at the same time.
func overlap(a, b spanView) error {
	if a.StartTime >= b.end() || b.StartTime >= a.end() {
		return fmt.Errorf("%s (%d to %d) and %s (%d to %d) did not go on at the same time",
			a.OperationName, a.StartTime, a.end(), b.OperationName, b.StartTime, b.end())
	}
	return nil
}
