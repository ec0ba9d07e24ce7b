// Package rwlock is read/write locks on Redis: many readers or one writer, in all
// processes, with reads that cost no command where nobody writes.
//
//	catalog := rwlock.New(c, "catalog")
//	err := catalog.Read(ctx, func(ctx context.Context) error { ... })
//
//	w, err := catalog.Lock(ctx)   // nobody else reads or writes
//	...
//	r, err := w.Downgrade()       // others may read, nobody can have written
//	...
//	err = r.Unlock()
//
// # One process, one read lease
//
// However many goroutines of a process read, Redis knows of one reader: the
// process. While its lease is valid and no writer waits anywhere, RLock and Unlock
// touch neither Redis nor a lock that cores share. The lease is kept for
// coordinator.WithSharedRetention after the last read, as long as nobody wants to
// write: a cache that keeps it for an hour reads for an hour without asking, and
// still lets a writer in at once. A process that has the write lease serves its
// own readers and writers under it.
//
// # Turns
//
// Neither side starves the other. A writer that waits is told to all processes that
// read: they let no new reader in, wait for those inside, and release; the last
// release makes the writer the holder. When it leaves, all readers that wait come in
// together, in all processes, whoever else waits to write before or behind them; then
// it is the next writer's turn. (Phase-fair locks: Brandenburg and Anderson,
// "Spin-Based Reader-Writer Synchronization for Multiprocessor Real-Time Systems",
// 2010.)
//
// A turn is a process's. One that writes seldom passes the lock on after each write.
// One whose writes come close upon each other (within twenty slices of
// coordinator.WithHandoff, 100 ms) keeps the write lease for a whole turn, at most the
// budget's 64 writes and the slice's 5 ms after somebody else wanted it, with its own
// readers inside between the writes: a lock that many write is passed between
// processes once for many holds. With coordinator.Fair it passes on after each.
//
// # Crashes
//
// Each process renews its own read lease, which has a deadline of its own: that of
// a reader that crashed ends, whoever else goes on reading. A read hold whose lease
// was lost (not renewed in time, deleted, flushed) ends as a mutex's does: its
// context ends, Unlock says so.
package rwlock
