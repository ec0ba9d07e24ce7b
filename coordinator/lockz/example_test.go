package lockz_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/coordinator/lockz"
)

// The page is mounted beside pprof, where operators get to it and nobody else.
func ExampleHandler() {
	h := coordinatortest.Start()
	defer h.Close()
	operators := http.NewServeMux()
	operators.Handle("/debug/lockz", lockz.Handler(h.Coordinator, lockz.WithTitle("shop")))
	server := httptest.NewServer(operators)
	defer server.Close()

	hold, err := h.Coordinator.Mutex("order:42").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := http.Get(server.URL + "/debug/lockz?format=json&q=order:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	var page lockz.Page
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range page.Keys {
		fmt.Println(key.Text, key.Kind, len(key.Holds), "hold", len(key.Waiters), "waiters")
	}
	fmt.Println(len(page.Cycles), "deadlocks")
	fmt.Println(hold.Unlock())
	// Output:
	// order:42 mutex 1 hold 0 waiters
	// 0 deadlocks
	// <nil>
}
