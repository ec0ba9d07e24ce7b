package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const (
	// workerVariable makes this test binary a worker, and says of which kind.
	workerVariable = "LEASEHOLD_FLEET_WORKER"
	// parentVariable makes it the parent of two workers, which does nothing until it is killed.
	parentVariable = "LEASEHOLD_FLEET_PARENT"
	// deadline is for what takes no time, if it comes about.
	deadline = 30 * time.Second
)

// Kinds of workers.
const (
	obedient = workerVariable + "=obedient"
	broken   = workerVariable + "=broken"
	mute     = workerVariable + "=mute"
	deaf     = workerVariable + "=deaf"
)

func TestMain(m *testing.M) {
	if kind, ok := os.LookupEnv(workerVariable); ok {
		worker(workerVariable + "=" + kind)
		return
	}
	if _, ok := os.LookupEnv(parentVariable); ok {
		_, _, err := Start[word](context.Background(), 2, obedient, nil)
		fmt.Println("started", err)
		time.Sleep(time.Hour)
		return
	}
	// Each process of a race-detecting binary would linger for a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=10 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

type order struct{ Number int }

type word struct {
	PID      int
	Number   int
	Progress bool
	Error    string
}

func (w word) Failure() string { return w.Error }

// worker answers each order with its number, after a word of its progress, if it is obedient.
func worker(kind string) {
	line := NewLine[order](os.Stdin, os.Stdout)
	switch kind {
	case broken:
		line.Say(word{Error: "no luck today"})
		return
	case mute:
		<-line.Orders
		return
	}
	line.Say(word{PID: os.Getpid()})
	for o := range line.Orders {
		line.Say(word{Number: 10 * o.Number, Progress: true})
		line.Say(word{PID: os.Getpid(), Number: o.Number})
	}
	if kind == deaf {
		time.Sleep(time.Hour)
	}
}

func TestWorkersAnswerInTheirOrder(t *testing.T) {
	var progress [3]atomic.Int64
	team, hellos, err := Start(t.Context(), 3, obedient, func(i int, w word) bool {
		if w.Progress {
			progress[i].Add(int64(w.Number))
		}
		return w.Progress
	})
	require.NoError(t, err)
	for number := 1; number <= 3; number++ {
		team.Order(order{Number: number})
		words, err := team.Answers(t.Context())
		require.NoError(t, err)
		require.Len(t, words, 3)
		for i, w := range words {
			require.Equal(t, word{PID: team.members[i].cmd.Process.Pid, Number: number}, w)
			require.Equal(t, hellos[i].PID, w.PID)
		}
	}
	for i := range progress {
		require.EqualValues(t, 10+20+30, progress[i].Load())
	}
	require.NoError(t, team.Close())
}

func TestEveryWordIsAnAnswerWithoutAside(t *testing.T) {
	team, _, err := Start[word](t.Context(), 1, obedient, nil)
	require.NoError(t, err)
	team.Order(order{Number: 1})
	words, err := team.Answers(t.Context())
	require.NoError(t, err)
	require.True(t, words[0].Progress)
	require.NoError(t, team.Close(), "with a word that nobody has heard")
}

func TestTeamTellsOfAWorkerThatDied(t *testing.T) {
	team, _, err := Start[word](t.Context(), 2, obedient, func(_ int, w word) bool { return w.Progress })
	require.NoError(t, err)
	require.NoError(t, team.members[1].cmd.Process.Kill())
	team.Order(order{Number: 1})
	_, err = team.Answers(t.Context())
	require.ErrorContains(t, err, fmt.Sprintf("worker %d ended early", team.members[1].cmd.Process.Pid))
	require.ErrorContains(t, team.Close(), "killed")
}

// Who was killed is missed by nobody, and a new one takes the place.
func TestKilledWorkerIsReplaced(t *testing.T) {
	team, hellos, err := Start(t.Context(), 3, obedient, func(_ int, w word) bool { return w.Progress })
	require.NoError(t, err)
	require.NoError(t, team.Kill(1))
	process, err := os.FindProcess(hellos[1].PID)
	require.NoError(t, err)
	require.Error(t, process.Signal(os.Interrupt), "it is gone")
	team.Order(order{Number: 1})
	words, err := team.Answers(t.Context())
	require.NoError(t, err)
	require.Equal(t, []word{{PID: hellos[0].PID, Number: 1}, {}, {PID: hellos[2].PID, Number: 1}}, words)

	hello, err := team.Restart(t.Context(), 1)
	require.NoError(t, err)
	require.NotEqual(t, hellos[1].PID, hello.PID)
	team.Order(order{Number: 2})
	words, err = team.Answers(t.Context())
	require.NoError(t, err)
	require.Equal(t, word{PID: hello.PID, Number: 2}, words[1])
	require.NoError(t, team.Kill(2))
	require.NoError(t, team.Close(), "that one was killed is no failure")
}

func TestTeamTellsWhatAWorkerSaid(t *testing.T) {
	_, _, err := Start[word](t.Context(), 2, broken, nil)
	require.ErrorContains(t, err, ": no luck today")
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
	_, _, err := Start[word](ctx, 2, mute, nil)
	require.ErrorIs(t, err, enough)
}

func TestCloseKillsWhoTakesTooLong(t *testing.T) {
	team, _, err := Start[word](t.Context(), 2, deaf, nil)
	require.NoError(t, err)
	require.ErrorContains(t, team.closeWithin(50*time.Millisecond), "killed")
}

// A parent that is killed can tell nobody; its workers end all the same, and with them the output that is theirs too.
func TestWorkersEndWithTheirParent(t *testing.T) {
	binary, err := os.Executable()
	require.NoError(t, err)
	parent := exec.Command(binary)
	parent.Env = append(os.Environ(), parentVariable+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	shared, err := parent.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	defer parent.Process.Kill() // it has been, unless the test has failed
	started, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started <nil>\n", started)
	require.NoError(t, parent.Process.Kill())
	gone := make(chan string)
	go func() {
		said, _ := io.ReadAll(shared)
		gone <- string(said)
	}()
	select {
	case said := <-gone:
		require.Empty(t, said)
	case <-time.After(deadline):
		t.Fatal("a worker stayed behind")
	}
	require.Error(t, parent.Wait())
}

func TestLinesAreWholeWhoeverSaysThem(t *testing.T) {
	var out strings.Builder
	line := NewLine[order](strings.NewReader(`{"Number":1} {"Number":2}`), &out)
	require.Equal(t, order{Number: 1}, <-line.Orders)
	require.Equal(t, order{Number: 2}, <-line.Orders)
	_, open := <-line.Orders
	require.False(t, open)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { line.Say(word{Number: 1}) })
	}
	wg.Wait()
	require.Equal(t, strings.Repeat(`{"PID":0,"Number":1,"Progress":false,"Error":""}`+"\n", 20), out.String())
}
