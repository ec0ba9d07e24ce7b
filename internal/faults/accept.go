package faults

import "net"

// serve accepts connections until the listener is closed.
func (p *Proxy) serve(listener net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = listener
	p.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.accept(conn)
		}
	})
}

// accept takes one connection in, as the present state of the proxy wants it.
func (p *Proxy) accept(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	switch {
	case p.closed:
		resetConn(conn)
	case p.halfOpen:
		p.mutes[conn] = struct{}{}
	default:
		p.dialing[conn] = struct{}{}
		p.wg.Go(func() { p.connect(conn.(*net.TCPConn)) })
	}
}

// connect joins a client to the server and forwards until either is gone. A server that can't be reached
// shows as a connection cut at once.
func (p *Proxy) connect(client *net.TCPConn) {
	server, err := net.DialTimeout("tcp", p.upstream, dialLimit)
	p.mu.Lock()
	_, wanted := p.dialing[client]
	delete(p.dialing, client)
	if err != nil || !wanted {
		p.mu.Unlock()
		resetConn(client)
		if err == nil {
			_ = server.Close() // unused so far
		}
		return
	}
	l := newLink(p, client, server.(*net.TCPConn))
	p.links[l] = struct{}{}
	p.mu.Unlock()
	l.run()
	l.close(false)
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}
