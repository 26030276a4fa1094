package nsxsim

import (
	"cmp"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
)

// realLocked reports whether the last change of an object is in force.
func (s *Sim) realLocked(o *Object) bool {
	return !time.Now().Before(o.Since.Add(s.options.Activation)) && s.reasonLocked(o) == ""
}

// reasonLocked is why an object cannot be realized.
func (s *Sim) reasonLocked(o *Object) string {
	for at, reason := range s.broken {
		if strings.HasPrefix(o.Path, at) {
			return reason
		}
	}
	if kindOf(o.Path).immutable && o.Address == "" {
		return "IpAddressPool " + path.Dir(path.Dir(o.Path)) + " is exhausted: there is no free address"
	}
	return s.oversizeLocked(o)
}

// oversizeLocked is why a virtual server is more than its load balancer service has room for, together with those written before it.
func (s *Sim) oversizeLocked(o *Object) string {
	service, servers, members := s.objects[o.Text("lb_service_path")], 0, 0
	if service == nil || service.Text("size") != "LARGE" {
		return ""
	}
	for _, other := range s.objects {
		if other.Text("lb_service_path") != service.Path || cmp.Or(other.Since.Compare(o.Since), strings.Compare(other.Path, o.Path)) > 0 {
			continue
		}
		servers++
		if pool := s.objects[other.Text("pool_path")]; pool != nil {
			list, _ := pool.Fields["members"].([]any)
			members += len(list)
		}
	}
	for _, err := range []error{nsxlimits.Servers.CheckNumber(servers), nsxlimits.Members.CheckNumber(members)} {
		if err != nil {
			return err.Error()
		}
	}
	return ""
}

// realizedLocked returns the realized state of an object.
func (s *Sim) realizedLocked(at string) (any, error) {
	o := s.objects[at]
	if o == nil {
		return nil, notFound(at)
	}
	entity := map[string]any{
		"state": "UNREALIZED", "intent_paths": []string{at}, "resource_type": "GenericPolicyRealizedResource", "alarms": []any{},
		"id": path.Base(at), "extended_attributes": []any{}, "publish_status": "UNREALIZED", "publish_status_error_code": 0,
	}
	if !time.Now().Before(o.Since.Add(s.options.Activation)) {
		entity["state"] = "REALIZED"
		if reason := s.reasonLocked(o); reason != "" {
			entity["state"], entity["publish_status_error"] = "ERROR", reason
			entity["alarms"] = []any{map[string]any{"message": reason, "error_details": map[string]any{"error_message": reason, "error_code": codeUnknown}}}
		} else if o.Address != "" {
			entity["extended_attributes"] = []any{map[string]any{"data_type": "STRING", "key": "allocation_ip", "values": []string{o.Address}, "multivalue": false}}
		}
	}
	return map[string]any{"results": []any{entity}, "result_count": 1}, nil
}

// allocateLocked gives an allocation the first address of its pool that is free; one that finds none has none.
func (s *Sim) allocateLocked(o *Object) {
	pool := s.pools[path.Base(path.Dir(path.Dir(o.Path)))]
	taken := map[string]bool{}
	for _, other := range s.objects {
		taken[other.Address] = true
		if ip := other.Text("ip_address"); ip != "" {
			taken[ip] = true
		}
	}
	for ip := pool.first; ip.IsValid() && ip.Compare(pool.last) <= 0; ip = ip.Next() {
		if until, released := s.released[ip.String()]; !taken[ip.String()] && (!released || !time.Now().Before(until)) {
			o.Address = ip.String()
			return
		}
	}
}

// Resize changes the last address of a pool.
func (s *Sim) Resize(pool, last string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.pools[pool]
	r.last = netip.MustParseAddr(last)
	s.pools[pool] = r
}

// listLocked answers a page of a listing.
func (s *Sim) listLocked(at string, r *http.Request) (any, error) {
	if parent := path.Dir(at); strings.Count(at, "/") > 3 && s.objects[parent] == nil {
		return nil, notFound(parent)
	}
	return s.pageLocked(r, func(o *Object) bool { return path.Dir(o.Path) == at })
}

// pageLocked answers with a page of the objects of which something is true.
func (s *Sim) pageLocked(r *http.Request, is func(*Object) bool) (any, error) {
	q := r.URL.Query()
	size := s.options.Page
	if text := q.Get("page_size"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > largestPage {
			return nil, invalid("page_size %s is not between 1 and %d", text, largestPage)
		}
		size = min(size, n)
	}
	objects := s.objects
	if old, lags := s.listed.Seen(); lags {
		objects = old
	}
	var all []*Object
	for _, o := range objects {
		if is(o) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *Object) int { return strings.Compare(a.Path, b.Path) })
	all = simkit.Scattered(&s.disorder, all, func(o *Object) string { return o.Path })
	from := 0
	if cursor := q.Get("cursor"); cursor != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(cursor, "c"))
		if err != nil || n > len(all) {
			return nil, invalid("cursor %s is not valid", cursor)
		}
		from = n
	}
	results := []any{}
	for _, o := range all[from:min(from+size, len(all))] {
		results = append(results, s.shownLocked(o))
	}
	page := map[string]any{"results": results, "sort_by": "display_name", "sort_ascending": true}
	if from == 0 {
		page["result_count"] = len(all)
	}
	if from+size < len(all) {
		page["cursor"] = "c" + strconv.Itoa(from+size)
	}
	return page, nil
}
