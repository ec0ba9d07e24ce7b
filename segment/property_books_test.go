package segment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// dump returns all that there is of a segment, at one moment.
const dump = `local stem, tag = ARGV[1], ARGV[2]
local bucket = redis.call('HGET', stem .. 'books' .. tag, 'bucket') or '0'
local function hash(name) return redis.call('HGETALL', stem .. name .. tag) end
return {hash('books'), hash('orders:' .. string.format('%.0f', bucket - 1)), hash('orders:' .. bucket), hash('open'), hash('users'),
  redis.call('ZRANGE', stem .. 'due' .. tag, 0, -1, 'WITHSCORES')}`

// page is what Redis has of a segment.
type page struct {
	books, before, present, open, users, due map[string]string
}

func (w *world) page(i int) (*page, error) {
	k := newKeys(w.processes[0].stock.settings.KeyPrefix, w.name, i)
	m := w.server.Do(w.t, "EVAL", dump, "1", k.books, k.stem, k.tag)
	all, err := m.ToArray()
	if err != nil {
		return nil, err
	}
	p := &page{}
	for i, to := range []*map[string]string{&p.books, &p.before, &p.present, &p.open, &p.users, &p.due} {
		if *to, err = pairsOf(&all[i]); err != nil {
			return nil, err
		}
		delete(*to, "") // the entry that is none
	}
	return p, nil
}

func pairsOf(m *rueidis.RedisMessage) (map[string]string, error) {
	flat, err := m.AsStrSlice()
	all := map[string]string{}
	for i := 0; i+1 < len(flat); i += 2 {
		all[flat[i]] = flat[i+1]
	}
	return all, err
}

// compare says where Redis has something else than what the chronicle tells.
func (w *world) compare() error {
	m := w.mayhem
	m.mu.Lock()
	defer m.mu.Unlock()
	pages := make([]*page, w.conf.Segments)
	var left, gave, gotten int64
	sets := map[string]bool{}
	for i := range pages {
		p, err := w.page(i)
		if err != nil {
			return err
		}
		pages[i] = p
		s := m.book.sections[i]
		if p.books["set"] != s.set {
			return fmt.Errorf("segment %d is %q, and should be %q", i, p.books["set"], s.set)
		}
		sets[s.set] = true
		if s.set == "" {
			continue
		}
		if err := m.book.sums(s, p); err != nil {
			return fmt.Errorf("segment %d: %w: %v", i, err, p.books)
		}
		if err := m.book.entries(s, p); err != nil {
			return fmt.Errorf("segment %d: %w", i, err)
		}
		left += p.number("left")
		gave += p.number("gave")
		gotten += p.number("gotten")
	}
	if len(sets) > 1 || sets[""] {
		return nil
	}
	set := m.book.sections[0].set
	if sum := left + gave - gotten; sum != m.book.left(set) {
		return fmt.Errorf("%d are left and %d under way, and it should be %d together", left, gave-gotten, m.book.left(set))
	}
	return received(pages)
}

func (p *page) number(name string) int64 { return atoi(p.books[name]) }

// sums compares a segment's books with what was done there, and with themselves.
func (c *chronicle) sums(s *section, p *page) error {
	for name, want := range map[string]int64{"took": s.took, "reserved": s.reserved, "loaded": s.loaded} {
		if got := p.number(name); got != want {
			return fmt.Errorf("%s is %d, and should be %d", name, got, want)
		}
	}
	n := p.number
	if n("loaded")+n("gotten")+n("short") != n("took")+n("reserved")+n("parts")+n("left")+n("gave") || n("short") != 0 {
		return fmt.Errorf("the books don't balance")
	}
	for name, text := range p.books {
		if name != "set" && atoi(text) < 0 {
			return fmt.Errorf("%s is negative", name)
		}
	}
	opens := int64(0)
	for _, note := range s.records {
		if note.kind == 'v' {
			opens++
		}
	}
	if n("opens") != opens || int64(len(p.open)) != opens || int64(len(p.due)) != opens {
		return fmt.Errorf("%d reservations, and %v open and %v due", opens, p.open, p.due)
	}
	for user, text := range p.users {
		if atoi(text) != s.users[user] || atoi(text) > c.limit {
			return fmt.Errorf("%s has %s units, and should have %d", user, text, s.users[user])
		}
	}
	if len(p.users) != len(s.users) {
		return fmt.Errorf("users have %v, and should have %v", p.users, s.users)
	}
	return nil
}

// entries compares what is on record.
func (c *chronicle) entries(s *section, p *page) error {
	found := map[string]string{}
	for _, from := range []map[string]string{p.before, p.present, p.open} {
		for field, text := range from {
			found[field] = text
		}
	}
	for field, text := range found {
		n, ok := s.records[field]
		if !ok {
			return fmt.Errorf("%q is on record as %q, and should not be", field, text)
		}
		want := string(n.kind) + strconv.FormatInt(n.quantity, 10)
		if n.kind == 'v' {
			want += " " + strconv.FormatInt(n.deadline, 10)
			if p.due[field] == "" || atoi(p.due[field]) != n.deadline {
				return fmt.Errorf("%q is due at %q, and should be at %d", field, p.due[field], n.deadline)
			}
		}
		if text != want {
			return fmt.Errorf("%q is on record as %q, and should be as %q", field, text, want)
		}
	}
	for field, n := range s.records {
		if _, ok := found[field]; !ok && !c.maybeForgotten(s, &n) {
			return fmt.Errorf("%q should be on record as %c%d, and is not", field, n.kind, n.quantity)
		}
	}
	return nil
}

// received wants nobody to have received what was not given.
func received(pages []*page) error {
	for i, p := range pages {
		for name, text := range p.books {
			donor, ok := strings.CutPrefix(name, "got:")
			if !ok {
				continue
			}
			if given := pages[atoi(donor)].number("given:" + strconv.Itoa(i)); given < atoi(text) {
				return fmt.Errorf("segment %d has received %s units of %s, which has given %d", i, text, donor, given)
			}
		}
	}
	return nil
}

// tidy says what is left of buckets that are forgotten.
func (w *world) tidy() error {
	buckets := map[string][]string{}
	for _, key := range keysOf(w.t, w.server, w.name) {
		if _, rest, ok := strings.Cut(key, "~stock:orders:"); ok {
			bucket, tag, _ := strings.Cut(rest, "{")
			buckets[tag] = append(buckets[tag], bucket)
		}
	}
	for tag, all := range buckets {
		if slices.Sort(all); len(all) > 2 {
			return fmt.Errorf("%s has the buckets %v", tag, all)
		}
	}
	return nil
}
