package shop

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/segment"
)

const (
	// bodyLimit bounds a request's body, in bytes: an order has two names of 128 bytes at most.
	bodyLimit = 4 << 10
	// headerBytes bounds its header.
	headerBytes = 16 << 10
	// headerLimit, readLimit, writeLimit and idleLimit bound how long a client may take.
	headerLimit = 5 * time.Second
	readLimit   = 10 * time.Second
	writeLimit  = 30 * time.Second
	idleLimit   = time.Minute
	// retryAfter is when to come back, in seconds, after a 429 or a 503.
	retryAfter = 1
)

// Limits are what a process takes upon itself.
type Limits struct {
	Requests int           // at once; one more is refused with 429
	Quantity int64         // of one order
	Work     time.Duration // on one request
}

// Order is the body of a request.
type Order struct {
	User     string `json:"user"`
	ID       string `json:"order"`
	Quantity int64  `json:"quantity,omitempty"` // POST /buy
	Now      bool   `json:"now,omitempty"`      // POST /buy: sold at once, and not reserved
}

// Answer is the body of an answer, whatever it is.
type Answer struct {
	State    string    `json:"state,omitempty"` // what became of the order: "reserved", "paid" or "cancelled"
	Deadline time.Time `json:"deadline,omitzero"`
	Repeated bool      `json:"repeated,omitempty"` // it had been so before
	Left     *int64    `json:"left,omitempty"`     // GET /stock
	Code     string    `json:"code,omitempty"`     // what is wrong, for programs; see refusals
	Message  string    `json:"message,omitempty"`  // and for people
	Request  string    `json:"request,omitempty"`  // the request's id, with an error
}

// refusals are what the errors of a sale are to a client, the first that matches. After a 429 or a 503, or no answer, the
// client sends the same order again, with the same ID, and to another process if it likes: the order may have been taken, and
// then gets that answer. Before it gives such an order up it cancels it; see Sale.
var refusals = []struct {
	err     error
	status  int
	code    string
	message string
}{
	// First, for a refusal can be that too: a copy of the order may still be on its way, and take.
	{segment.ErrUncertain, http.StatusServiceUnavailable, "uncertain", "What became of the order is not known. Send it again."},
	{segment.ErrSoldOut, http.StatusConflict, "sold_out", "There are not enough left. Reservations that are not paid for may bring some back."},
	{segment.ErrUserLimit, http.StatusForbidden, "user_limit", "That is more than one user may have."},
	{segment.ErrOrderMismatch, http.StatusUnprocessableEntity, "mismatch", "There is an order of this ID with another quantity."},
	{segment.ErrExpired, http.StatusGone, "expired", "The reservation was not paid for in time, and holds nothing any more."},
	{segment.ErrReturned, http.StatusConflict, "cancelled", "The order was cancelled."},
	{segment.ErrReserved, http.StatusConflict, "reserved", "The order is reserved: pay for it, or cancel it."},
	{segment.ErrConfirmed, http.StatusConflict, "paid", "The order is paid."},
	{segment.ErrUnknownOrder, http.StatusNotFound, "unknown", "There is no such order."},
	{coordinator.ErrInvalid, http.StatusBadRequest, "invalid", "The order makes no sense."},
	{segment.ErrNotDone, http.StatusServiceUnavailable, "unavailable", "Nothing was done. Send it again a little later."},
	{coordinator.ErrTooManyWaiters, http.StatusTooManyRequests, "busy", "Too many are waiting. Send it again a little later."},
	{segment.ErrNotLoaded, http.StatusServiceUnavailable, "closed", "There is no sale now."},
	{segment.ErrEpoch, http.StatusServiceUnavailable, "closed", "There is no sale now."},
	{coordinator.ErrUnavailable, http.StatusServiceUnavailable, "unavailable", "Send it again a little later."},
	{coordinator.ErrClosed, http.StatusServiceUnavailable, "unavailable", "Send it again, to another server."},
	{ErrDatabase, http.StatusServiceUnavailable, "uncertain", "What became of the order is not known. Send it again."},
}

// NewServer returns a server with the limits that every server should have.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, MaxHeaderBytes: headerBytes,
		ReadHeaderTimeout: headerLimit, ReadTimeout: readLimit, WriteTimeout: writeLimit, IdleTimeout: idleLimit,
	}
}

// face is what a sale is to HTTP.
type face struct {
	sale   *Sale
	limits Limits
	log    *slog.Logger
	places chan struct{} // one for each request that is served
}

// Handler serves a sale.
func Handler(sale *Sale, limits Limits, log *slog.Logger) http.Handler {
	f := &face{sale: sale, limits: limits, log: log, places: make(chan struct{}, limits.Requests)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /buy", f.order(f.buy))
	mux.HandleFunc("POST /pay", f.order(f.pay))
	mux.HandleFunc("POST /cancel", f.order(f.cancel))
	mux.HandleFunc("GET /stock", f.stock)
	mux.HandleFunc("GET /healthz", f.healthz) // is asked also when all places are taken
	return f.named(mux)
}

// requestHeader is where a request's id is. A client may choose it, so that its own log has it too.
const requestHeader = "X-Request-Id"

var validRequest = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// named gives each request an id.
func (f *face) named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestHeader)
		if !validRequest.MatchString(id) {
			id = rand.Text()
		}
		w.Header().Set(requestHeader, id)
		next.ServeHTTP(w, r)
	})
}

// enter takes a place for a request, or refuses it: a queue that is longer than what can be served in the time that a
// client waits serves nobody.
func (f *face) enter(w http.ResponseWriter) bool {
	select {
	case f.places <- struct{}{}:
		return true
	default:
		f.refuse(w, fmt.Errorf("%w: %d requests are being served", coordinator.ErrTooManyWaiters, cap(f.places)))
		return false
	}
}

func (f *face) leave() { <-f.places }

// order reads an order, has something done with it, and answers. A client that is slow to send takes no place meanwhile.
// One that hangs up is served all the same, so that what is begun is not left half done for no more than that.
func (f *face) order(do func(ctx context.Context, o *Order) (Answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, err := f.read(http.MaxBytesReader(w, r.Body, bodyLimit))
		if err != nil {
			f.refuse(w, err)
			return
		}
		if !f.enter(w) {
			return
		}
		answer, err := func() (Answer, error) {
			defer f.leave() // before the answer is sent, for the same reason
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), f.limits.Work)
			defer cancel()
			return do(ctx, o)
		}()
		if err != nil {
			f.refuse(w, err)
			return
		}
		write(w, http.StatusOK, &answer)
	}
}

// read reads an order, and refuses what makes no sense before anything is asked.
func (f *face) read(body io.Reader) (*Order, error) {
	var o Order
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		return nil, fmt.Errorf("%w: %w", coordinator.ErrInvalid, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: there is more than one order", coordinator.ErrInvalid)
	}
	switch {
	case o.User == "" || len(o.User) > segment.MaxID:
		return nil, fmt.Errorf("%w: user must have 1 to %d bytes", coordinator.ErrInvalid, segment.MaxID)
	case o.ID == "" || len(o.ID) > segment.MaxID:
		return nil, fmt.Errorf("%w: order must have 1 to %d bytes", coordinator.ErrInvalid, segment.MaxID)
	}
	return &o, nil
}

func (f *face) buy(ctx context.Context, o *Order) (Answer, error) {
	if o.Quantity < 1 || o.Quantity > f.limits.Quantity {
		return Answer{}, fmt.Errorf("%w: quantity must be from 1 to %d", coordinator.ErrInvalid, f.limits.Quantity)
	}
	line := segment.Order{User: o.User, ID: o.ID, Quantity: o.Quantity}
	if o.Now {
		receipt, err := f.sale.Deduct(ctx, line)
		return Answer{State: "paid", Repeated: receipt.Repeated}, err
	}
	r, err := f.sale.Reserve(ctx, line)
	switch {
	case err != nil:
		return Answer{}, err
	case r.Confirmed:
		return Answer{State: "paid", Repeated: true}, nil
	}
	return Answer{State: "reserved", Deadline: r.Deadline.UTC(), Repeated: r.Repeated}, nil
}

func (f *face) pay(ctx context.Context, o *Order) (Answer, error) {
	receipt, err := f.sale.Pay(ctx, o.User, o.ID)
	return Answer{State: "paid", Repeated: receipt.Repeated}, err
}

func (f *face) cancel(ctx context.Context, o *Order) (Answer, error) {
	return Answer{State: "cancelled"}, f.sale.Cancel(ctx, o.User, o.ID)
}

func (f *face) stock(w http.ResponseWriter, r *http.Request) {
	if !f.enter(w) {
		return
	}
	defer f.leave()
	left, err := f.sale.Left(r.Context())
	if err != nil {
		f.refuse(w, err)
		return
	}
	write(w, http.StatusOK, &Answer{Left: &left})
}

// healthz tells a load balancer whether to send anybody here. It is no reason to end the process: where Redis is away, it
// is away for all of them.
func (f *face) healthz(w http.ResponseWriter, r *http.Request) {
	if _, err := f.sale.Left(r.Context()); err != nil {
		f.refuse(w, err)
		return
	}
	write(w, http.StatusOK, &Answer{State: "ok"})
}

// refuse tells the client what is wrong, and the log what a client can't do anything about.
func (f *face) refuse(w http.ResponseWriter, err error) {
	status, answer := http.StatusInternalServerError, Answer{Code: "internal", Message: "That should not happen."}
	for i := range refusals {
		if errors.Is(err, refusals[i].err) {
			status, answer = refusals[i].status, Answer{Code: refusals[i].code, Message: refusals[i].message}
			break
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
		answer.Message = fmt.Sprintf("An order has no more than %d bytes.", large.Limit)
	case status == http.StatusBadRequest:
		answer.Message = err.Error() // about the client's own input
	}
	answer.Request = w.Header().Get(requestHeader)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	if status >= http.StatusInternalServerError {
		f.log.Warn("request failed", "request", answer.Request, "status", status, "error", err)
	}
	write(w, status, &answer)
}

func write(w http.ResponseWriter, status int, answer *Answer) {
	text, err := json.Marshal(answer)
	if err != nil { // it has no field that can't be written
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client is gone, then
}
