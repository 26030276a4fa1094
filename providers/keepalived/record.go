package keepalived

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// annotationRegistry is the annotation of the ConfigMap in which keepalived-cloud-provider records addresses.
const annotationRegistry = "k8s.co/cloud-provider-config"

// keyConfiguration is the key of the rendered keepalived.conf.
const keyConfiguration = "keepalived.conf"

// entry records the addresses of a Service. The JSON names, except the last one, are those of keepalived-cloud-provider.
type entry struct {
	UID       string `json:"uid"`
	IP        string `json:"ip"`
	Namespace string `json:"serviceNamespace,omitempty"`
	Name      string `json:"serviceName,omitempty"`
	Method    string `json:"forwardMethod,omitempty"`
	// Second is the address of the other family.
	Second string `json:"secondIP,omitempty"`
}

// title names the Service of an entry; it is "" in entries of the oldest version.
func (e entry) title() string {
	if e.Name == "" {
		return ""
	}
	return "Service " + e.Namespace + "/" + e.Name
}

// addresses returns the addresses of an entry.
func (e entry) addresses() []netip.Addr {
	var all []netip.Addr
	for _, text := range []string{e.IP, e.Second} {
		if a := parseAddress(text); a.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

// value returns the text that kube-keepalived-vip reads under the address of an entry.
func (e entry) value() string {
	if e.Method == "" {
		return e.Namespace + "/" + e.Name
	}
	return e.Namespace + "/" + e.Name + ":" + e.Method
}

// newEntry returns the entry of a Service.
func newEntry(s *v1.Service, addresses []netip.Addr, method string) entry {
	e := entry{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name, Method: method, IP: addresses[0].String()}
	if len(addresses) > 1 {
		e.Second = addresses[1].String()
	}
	return e
}

// equals reports whether a stored entry equals a new one. One of the oldest version has no names.
func (e entry) equals(stored entry) bool {
	if stored.Name == "" && stored.Namespace == "" {
		stored.Namespace, stored.Name = e.Namespace, e.Name
		stored.Method = e.Method
	}
	return e == stored
}

// record is the content of the ConfigMap.
type record struct {
	entries []entry
	data    map[string]string
}

// readRecord parses a ConfigMap; nil is one that does not exist.
func readRecord(cm *v1.ConfigMap) (record, error) {
	if cm == nil {
		return record{}, nil
	}
	r := record{data: cm.Data}
	text := cm.Annotations[annotationRegistry]
	if text == "" {
		return r, nil
	}
	var registry struct {
		Services []entry `json:"services"`
	}
	if err := json.Unmarshal([]byte(text), &registry); err != nil {
		return r, fmt.Errorf("annotation %s of ConfigMap %s/%s, which says who has which address, cannot be read: %w; repair it, for nothing is "+
			"given, changed or removed before", annotationRegistry, cm.Namespace, cm.Name, err)
	}
	for _, e := range registry.Services {
		if e.UID == "" || len(e.addresses()) == 0 || (e.Second != "" && len(e.addresses()) < 2) {
			return r, fmt.Errorf("annotation %s of ConfigMap %s/%s has the entry %+v, which names no Service or no address; repair or remove it, "+
				"for nothing is given, changed or removed before", annotationRegistry, cm.Namespace, cm.Name, e)
		}
	}
	r.entries = registry.Services
	return r, nil
}

// addresses returns the addresses of all Services.
func (r record) addresses() (all []netip.Addr) {
	for _, e := range r.entries {
		all = append(all, e.addresses()...)
	}
	slices.SortFunc(all, netip.Addr.Compare) // IPv4 first
	return slices.Compact(all)
}

// entryOf returns the entry of a Service; an empty one if it has none.
func (r record) entryOf(uid string) entry {
	if at := r.index(uid); at >= 0 {
		return r.entries[at]
	}
	return entry{}
}

func (r record) index(uid string) int {
	return slices.IndexFunc(r.entries, func(e entry) bool { return e.UID == uid })
}

// put returns the record with an entry in place of the Service's former one.
func (r record) put(e entry) record {
	entries := slices.Clone(r.entries)
	if at := r.index(e.UID); at >= 0 {
		entries[at] = e
	} else {
		entries = append(entries, e)
	}
	return record{entries: entries, data: r.data}
}

// remove returns the record without the entry of a Service.
func (r record) remove(uid string) record {
	return record{data: r.data, entries: slices.DeleteFunc(slices.Clone(r.entries), func(e entry) bool { return e.UID == uid })}
}

// foreignAddresses returns the addresses for which users have their own keys.
func (r record) foreignAddresses() []netip.Addr {
	var all []netip.Addr
	for _, key := range slices.Sorted(maps.Keys(r.data)) {
		a := parseAddress(key)
		if a.IsValid() && !slices.ContainsFunc(r.entries, func(e entry) bool { return slices.Contains(e.addresses(), a) }) {
			all = append(all, a)
		}
	}
	return all
}

// fillNames adds the names that entries of the oldest version lack, from the existing Services.
func (r record) fillNames(services []*v1.Service) record {
	entries := slices.Clone(r.entries)
	for i, e := range entries {
		if e.Name != "" {
			continue
		}
		for _, s := range services {
			if string(s.UID) == e.UID {
				entries[i].Namespace, entries[i].Name = s.Namespace, s.Name
			}
		}
		if _, method, ok := strings.Cut(r.data[e.IP], ":"); ok && e.Method == "" {
			entries[i].Method = method
		}
	}
	return record{entries: entries, data: r.data}
}

// encode returns the text of the annotation.
func (r record) encode() string {
	entries := r.entries
	if entries == nil {
		entries = []entry{}
	}
	text, _ := json.Marshal(map[string][]entry{"services": entries}) // only strings
	return string(text)
}

// mergeData replaces the keys that kube-keepalived-vip reads by those of the new record.
func mergeData(before, after record) map[string]string {
	data := maps.Clone(before.data)
	if data == nil {
		data = map[string]string{}
	}
	for _, e := range before.entries {
		delete(data, e.IP)
	}
	for _, e := range after.entries {
		if e.Name == "" { // its Service is unknown; its key stays
			if value, ok := before.data[e.IP]; ok {
				data[e.IP] = value
			}
			continue
		}
		data[e.IP] = e.value()
	}
	return data
}
