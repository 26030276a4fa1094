package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// names gives the cloud's IDs stable names in a transcript, by kind and parent, so that the text stays the same if one more object is
// created or read.
type names struct {
	mu         sync.Mutex
	byIdentity map[string]string
	// services are the names of Services by their UIDs, as they are and without dashes.
	services map[string]string
}

// learnService names what has the UID of a Service in it.
func (n *names) learnService(s *v1.Service) {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid := string(s.UID)
	n.services[uid], n.services[strings.ReplaceAll(uid, "-", "")] = "UID("+s.Name+")", "UID("+s.Name+")"
}

// leastUID is how much of a UID tells whose it is: clouds have limits for names.
const leastUID = 16

// replaceUIDs puts the names of Services in the place of UIDs, also of those that were cut.
func (n *names) replaceUIDs(text string) string {
	for from := 0; from+leastUID <= len(text); {
		name, length := "", 0
		for uid, label := range n.services { // of two that begin alike the one that has more of the text
			if common := countCommon(text[from:], uid); common >= leastUID && (common > length || common == length && label < name) {
				name, length = label, common
			}
		}
		if length > 0 {
			text = text[:from] + name + text[from+length:]
		}
		from += max(len(name), 1)
	}
	return text
}

// countCommon returns how many bytes at the beginning of two texts are the same.
func countCommon(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// identityFields are those of objects in the state of simulators that hold their identity, and labelFields those by which they are told
// apart within their kind.
var (
	identityFields = []string{"id", "ID", "Id", "uuid", "UUID", "arn", "ARN", "crn", "ocid"}
	labelFields    = []string{"name", "Name", "display_name", "displayName", "port", "Port", "protocol_port", "listen_port", "address"}
)

// learn names what the cloud holds now. What was named stays named so.
func (n *names) learn(w *world) {
	var state any
	decoder := json.NewDecoder(bytes.NewReader(w.Sim.State()))
	decoder.UseNumber()
	_ = decoder.Decode(&state) // a simulator without a state has no identities
	found := map[string]string{}
	if w.Names != nil {
		found = w.Names()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, name := range found {
		n.put(id, name)
	}
	n.walk(state, "", "", map[string]bool{})
}

// learnNode names a node's addresses and instance after it.
func (n *names) learnNode(node *v1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range node.Status.Addresses {
		switch a.Type {
		case v1.NodeInternalIP:
			n.byIdentity[a.Address] = node.Name
		case v1.NodeExternalIP:
			if n.byIdentity[a.Address] != node.Name {
				n.byIdentity[a.Address] = node.Name + "/public"
			}
		}
	}
	n.byIdentity[node.Spec.ProviderID] = node.Name
	if id := path.Base(node.Spec.ProviderID); len(id) >= leastIdentity {
		n.byIdentity[id] = node.Name
	}
}

func (n *names) put(id, name string) {
	if _, known := n.byIdentity[id]; !known && len(id) >= leastIdentity {
		n.byIdentity[id] = name
	}
}

// leastIdentity is the length of identities that cannot be taken for something else.
const leastIdentity = 5

// walk names the objects of a state. taken are the names of this state.
func (n *names) walk(v any, kind, parent string, taken map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			n.walk(element, kind, parent, taken)
		}
	case map[string]any:
		if id := findText(v, identityFields); id != "" {
			label := strings.TrimSuffix(kind+"/"+findText(v, labelFields), "/")
			if known, ok := n.byIdentity[id]; ok {
				label = known
			}
			for _, longer := range []string{parent + "/" + label, label + " (another)"} {
				if taken[label] && n.byIdentity[id] == "" {
					label = longer
				}
			}
			n.put(id, label)
			taken[label], parent = true, label
		}
		for _, key := range sortedKeys(v) {
			next := strings.TrimSuffix(key, "s")
			if _, list := v[key].([]any); !list {
				if _, object := v[key].(map[string]any); object && kind != "" && findText(v, identityFields) == "" {
					next = kind // the elements of a map by identity
				}
			}
			n.walk(v[key], next, parent, taken)
		}
	}
}

func findText(object map[string]any, fields []string) string {
	for _, field := range fields {
		switch v := object[field].(type) {
		case string:
			if v != "" {
				return v
			}
		case json.Number:
			return v.String()
		}
	}
	return ""
}

// timestamps differ where one more call is made before, so that a transcript leaves them out.
var timestamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?`)

// apply puts the names in a text in the place of identities.
func (n *names) apply(text string) string {
	n.mu.Lock()
	ids := make([]string, 0, len(n.byIdentity))
	for id := range n.byIdentity {
		if strings.Contains(text, id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return len(b) - len(a) })
	for i, id := range ids {
		text = replaceWord(text, id, fmt.Sprintf("\x00%d\x00", i)) // so that no name is taken for an identity
	}
	for i, id := range ids {
		text = strings.ReplaceAll(text, fmt.Sprintf("\x00%d\x00", i), n.byIdentity[id])
	}
	text = n.replaceUIDs(text)
	n.mu.Unlock()
	return timestamps.ReplaceAllString(generatedIDs.ReplaceAllString(text, "<id>"), "<time>")
}

// replaceWord replaces a word where no letter or digit is next to it.
func replaceWord(text, word, by string) string {
	var b strings.Builder
	for from := 0; ; {
		at := strings.Index(text[from:], word)
		if at < 0 {
			b.WriteString(text[from:])
			return b.String()
		}
		at += from
		end := at + len(word)
		b.WriteString(text[from:at])
		if at > 0 && isWord(text[at-1]) || end < len(text) && isWord(text[end]) {
			b.WriteString(word)
		} else {
			b.WriteString(by)
		}
		from = end
	}
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
