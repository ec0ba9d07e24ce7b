package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/fleet"
)

const (
	// answerLimit bounds each wait for a service.
	answerLimit = time.Minute
	// lookEvery is how often a service is asked how far it is.
	lookEvery = 2 * time.Millisecond
)

// team is all services, and who sends them requests.
type team struct {
	members []*member
	keys    string // what the keys of locks begin with, drawn by lot
	http    *http.Client
}

// member is a service.
type member struct {
	*fleet.Team[word]
	role string
	url  string
}

// startTeam starts the services and waits until each listens.
func startTeam(ctx context.Context, s settings, redis, receiver string) (_ *team, err error) {
	t := &team{keys: "tracing:" + rand.Text()[:10], http: &http.Client{Transport: &http.Transport{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	to := setup{Redis: redis, Receiver: receiver, Keys: t.keys, Alarm: s.hold / 2, Lockz: s.lockz}
	if exportsTraces() {
		to.TraceURL = s.traceURL
	}
	for _, role := range []string{inventory, checkout, reports} {
		to.Role = role
		text, err := json.Marshal(to)
		if err != nil {
			return nil, err
		}
		of, words, err := fleet.Start[word](ctx, 1, workerVariable+"="+string(text), nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", role, err)
		}
		m := &member{Team: of, role: role, url: "http://" + words[0].Addr}
		t.members = append(t.members, m)
		if role == inventory {
			to.Inventory = m.url
		}
	}
	return t, nil
}

// of returns the service of a role.
func (t *team) of(role string) *member {
	for _, m := range t.members {
		if m.role == role {
			return m
		}
	}
	return nil
}

// close ends the services.
func (t *team) close() error {
	t.http.CloseIdleConnections()
	var errs []error
	for _, m := range t.members {
		if err := m.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.role, err))
		}
	}
	return errors.Join(errs...)
}

// flush has every service send its spans.
func (t *team) flush(ctx context.Context) error {
	for _, m := range t.members {
		m.Order(struct{}{})
	}
	for _, m := range t.members {
		if _, err := m.Answers(ctx); err != nil {
			return fmt.Errorf("%s: %w", m.role, err)
		}
	}
	return nil
}

// send sends a request, and returns the status of the answer. It is a client that knows of no trace.
func (t *team) send(ctx context.Context, role, pattern, name string) (status int, text string, err error) {
	method, path, _ := strings.Cut(pattern, " ")
	req, err := http.NewRequestWithContext(ctx, method, t.of(role).url+path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set(requestHeader, name)
	res, err := t.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close() //nolint:errcheck // it was read to its end
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, strings.TrimSpace(string(body)), err
}

// state asks a service how far it is.
func (t *team) state(ctx context.Context, role string) (is state, err error) {
	status, text, err := t.send(ctx, role, "GET /state", "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", role, status, text)
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &is)
	}
	return is, err
}

// until waits until a service has come so far.
func (t *team) until(ctx context.Context, role, what string, so func(state) bool) error {
	for {
		is, err := t.state(ctx, role)
		switch {
		case err == nil && so(is):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s never came so far that %s: %+v", role, what, is)
		case err != nil:
			return err
		}
		time.Sleep(lookEvery)
	}
}
