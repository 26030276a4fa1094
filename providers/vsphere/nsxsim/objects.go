package nsxsim

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind describes a kind of NSX object.
type kind struct {
	// collection is where objects of this kind are; * stands for an ID.
	collection string
	verbs      []string
	types      []string
	required   []string
	// fields are those beside the common ones, each with what its value must be.
	fields map[string]func(any) error
	// references are fields with paths of other objects.
	references map[string]string
	// immutable objects keep what they were made with.
	immutable bool
}

const (
	typeFastTCP = "LBFastTcpProfile"
	typeFastUDP = "LBFastUdpProfile"
)

// kindOf returns the kind of the object at a path, or nil.
func kindOf(at string) *kind {
	parts := strings.Split(at, "/")
	for _, k := range kinds {
		want := strings.Split(k.collection, "/")
		if len(parts) != len(want)+1 || parts[len(parts)-1] == "" {
			continue
		}
		if !slices.ContainsFunc(make([]struct{}, 1), func(struct{}) bool {
			for i := range want {
				if want[i] != "*" && want[i] != parts[i] {
					return true
				}
			}
			return false
		}) {
			return k
		}
	}
	return nil
}

func isAny(any) error { return nil }

func isText(v any) error {
	if _, ok := v.(string); !ok {
		return fmt.Errorf("%v is not text", v)
	}
	return nil
}

func isBool(v any) error {
	if _, ok := v.(bool); !ok {
		return fmt.Errorf("%v is not true or false", v)
	}
	return nil
}

func isNumber(v any) error {
	if n, ok := v.(float64); !ok || n < 0 || n != float64(int(n)) {
		return fmt.Errorf("%v is not a whole number", v)
	}
	return nil
}

func isPortNumber(v any) error {
	if n, ok := v.(float64); !ok || n < 1 || n > 65535 {
		return fmt.Errorf("%v is not a port", v)
	}
	return nil
}

func isPort(v any) error {
	text, _ := v.(string)
	if n, err := strconv.Atoi(text); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%v is not a port", v)
	}
	return nil
}

func isAddress(v any) error {
	text, _ := v.(string)
	_, err := netip.ParseAddr(text)
	return err
}

func isNetwork(v any) error {
	text, _ := v.(string)
	p, err := netip.ParsePrefix(text)
	if err == nil && p != p.Masked() {
		err = fmt.Errorf("%s has bits beyond its mask", text)
	}
	return err
}

func oneOf(values ...string) func(any) error {
	return func(v any) error {
		if text, _ := v.(string); !slices.Contains(values, text) {
			return fmt.Errorf("%v is none of %s", v, strings.Join(values, ", "))
		}
		return nil
	}
}

func areOf(is func(any) error) func(any) error {
	return func(v any) error {
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("%v is not a list", v)
		}
		for _, one := range list {
			if err := is(one); err != nil {
				return err
			}
		}
		return nil
	}
}

// fieldsOf checks an object within an object.
func fieldsOf(v any, required []string, fields map[string]func(any) error) error {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is not an object", v)
	}
	for _, name := range required {
		if m[name] == nil {
			return fmt.Errorf("%s is required", name)
		}
	}
	for name, value := range m {
		is := fields[name]
		if is == nil {
			return fmt.Errorf("unrecognized field %s", name)
		}
		if err := is(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func isMember(v any) error {
	return fieldsOf(v, []string{"ip_address"}, map[string]func(any) error{
		"ip_address": isAddress, "port": isPort, "admin_state": oneOf("ENABLED", "DISABLED", "GRACEFUL_DISABLED"), "display_name": isText,
		"weight": isNumber, "backup_member": isBool, "max_concurrent_connections": isNumber,
	})
}

func isSNAT(v any) error {
	return fieldsOf(v, []string{"type"}, map[string]func(any) error{
		"type": oneOf("LBSnatAutoMap", "LBSnatDisabled", "LBSnatIpPool"), "ip_addresses": isAny,
	})
}

func isHops(v any) error {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return fmt.Errorf("at least one next hop is required")
	}
	for _, one := range list {
		err := fieldsOf(one, []string{"ip_address"}, map[string]func(any) error{"ip_address": isAddress, "admin_distance": isNumber, "scope": areOf(isText)})
		if err != nil {
			return err
		}
	}
	return nil
}

func isTags(v any) error {
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("%v is no list", v)
	}
	for _, one := range list {
		if err := fieldsOf(one, nil, map[string]func(any) error{"scope": isText, "tag": isText}); err != nil {
			return err
		}
	}
	return nil
}

// checkLocked refuses what NSX refuses of a body, and of the objects that it names.
func (s *Sim) checkLocked(at string, k *kind, fields map[string]any) error {
	for name, value := range fields {
		if err := k.check(at, name, value); err != nil {
			return invalid("Field %s of %s: %s", name, at, err)
		}
	}
	if len(k.types) > 1 && fields["resource_type"] == nil {
		return invalid("Field resource_type of %s is required", at)
	}
	for _, name := range k.required {
		if fields[name] == nil {
			return invalid("Field %s of %s is required", name, at)
		}
	}
	return s.checkReferencesLocked(at, k, fields)
}

// check refuses what NSX refuses of one field.
func (k *kind) check(at, name string, value any) error {
	if is := k.fields[name]; is != nil {
		return is(value)
	}
	switch name {
	case "tags":
		return isTags(value)
	case "display_name", "description":
		return isText(value)
	case "id":
		if value != path.Base(at) {
			return fmt.Errorf("is not the one of the path")
		}
	case "resource_type":
		return oneOf(k.types...)(value)
	}
	if !slices.Contains(commonFields, name) {
		return fmt.Errorf("unrecognized field")
	}
	return nil
}

func (s *Sim) checkReferencesLocked(at string, k *kind, fields map[string]any) error {
	for name, collection := range k.references {
		for _, target := range texts(fields[name]) {
			if path.Dir(target) != collection || s.objects[target] == nil {
				return &apiError{http.StatusBadRequest, codeUnknown, fmt.Sprintf("The path=[%s] in field %s of %s does not exist", target, name, at)}
			}
		}
	}
	switch k.collection {
	case "/infra/lb-services":
		for _, o := range s.objects {
			if c := fields["connectivity_path"]; path.Dir(o.Path) == k.collection && o.Path != at && c != nil && o.Fields["connectivity_path"] == c {
				return &apiError{http.StatusBadRequest, 23004, fmt.Sprintf("%s has a load balancer service already", c)}
			}
		}
	case "/infra/lb-virtual-servers":
		return s.checkListenerLocked(at, fields)
	case "/infra/tier-1s/*/static-routes":
		if s.objects[path.Dir(path.Dir(at))] == nil {
			return notFound(path.Dir(path.Dir(at)))
		}
	case "/infra/ip-pools/*/ip-allocations":
		if s.objects[path.Dir(path.Dir(at))] == nil {
			return notFound(path.Dir(path.Dir(at)))
		}
	}
	return nil
}

// checkListenerLocked refuses two virtual servers on one port of one address.
func (s *Sim) checkListenerLocked(at string, fields map[string]any) error {
	protocol := func(fields map[string]any) string {
		profile, _ := fields["application_profile_path"].(string)
		if o := s.objects[profile]; o != nil && o.Fields["resource_type"] == typeFastUDP {
			return "UDP"
		}
		return "TCP"
	}
	for _, o := range s.objects {
		if path.Dir(o.Path) != "/infra/lb-virtual-servers" || o.Path == at || o.Fields["ip_address"] != fields["ip_address"] ||
			protocol(o.Fields) != protocol(fields) {
			continue
		}
		for _, p := range texts(fields["ports"]) {
			if slices.Contains(texts(o.Fields["ports"]), p) {
				return &apiError{http.StatusBadRequest, 23012, fmt.Sprintf("Port %s of %s is used by %s already", p, fields["ip_address"], o.Path)}
			}
		}
	}
	return nil
}

func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var list []string
		for _, one := range v {
			text, _ := one.(string)
			list = append(list, text)
		}
		return list
	}
	return nil
}

// writeLocked creates or changes one object.
func (s *Sim) writeLocked(at string, k *kind, fields map[string]any, replace bool) error {
	if until, erasing := s.erasing[at]; erasing && time.Now().Before(until) {
		return &apiError{http.StatusBadRequest, codeUnknown, fmt.Sprintf("Cannot create an object with path=[%s] as it's getting deleted.", at)}
	}
	now := s.objects[at]
	switch {
	case now != nil && k.immutable:
		return s.checkLocked(at, k, fields) // immutable: it can only be confirmed
	case now != nil && replace:
		revision, given := fields["_revision"].(float64)
		if !given || int(revision) != now.Revision {
			return &apiError{http.StatusPreconditionFailed, 604, fmt.Sprintf(
				"The object %s is present, but of revision %d, and not %v. Fetch the latest copy of the object and retry.", at, now.Revision, fields["_revision"])}
		}
	case now != nil:
		merged := copyOf(now.Fields)
		maps.Copy(merged, fields)
		fields = merged
	}
	if err := s.checkLocked(at, k, fields); err != nil {
		return err
	}
	s.storeLocked(at, fields)
	if k.collection == "/infra/ip-pools/*/ip-allocations" {
		s.allocateLocked(s.objects[at])
	}
	s.wroteLocked()
	return nil
}

func (s *Sim) storeLocked(at string, fields map[string]any) {
	k, o := kindOf(at), s.objects[at]
	if o == nil {
		o = &Object{Path: at, Revision: -1}
		s.objects[at] = o
	}
	for name, value := range defaults[k.collection] {
		if fields[name] == nil {
			fields[name] = value
		}
	}
	if len(k.types) == 1 {
		fields["resource_type"] = k.types[0]
	}
	if fields["display_name"] == nil {
		fields["display_name"] = path.Base(at)
	}
	fields["id"] = path.Base(at)
	for name := range fields { // what NSX itself says of an object, and a caller sends back
		own := strings.HasPrefix(name, "_") && fields[name] != true
		if own || slices.Contains([]string{"path", "parent_path", "relative_path", "unique_id", "marked_for_delete"}, name) {
			delete(fields, name)
		}
	}
	o.Fields, o.Since = fields, time.Now()
	o.Revision++
}

// shownLocked is an object as it is answered.
func (s *Sim) shownLocked(o *Object) map[string]any {
	fields := copyOf(o.Fields)
	fields["path"], fields["relative_path"], fields["parent_path"] = o.Path, o.ID(), path.Dir(path.Dir(o.Path))
	fields["unique_id"], fields["marked_for_delete"], fields["_revision"], fields["_create_user"] = "u-"+o.ID(), false, o.Revision, "admin"
	if fields["_system_owned"] == nil {
		fields["_system_owned"] = false
	}
	if o.Address != "" && !s.options.OldAllocations && s.realLocked(o) {
		fields["allocation_ip"] = o.Address
	}
	return fields
}

// referringLocked are the objects whose references count.
func (s *Sim) referringLocked() []*Object {
	all := slices.Collect(maps.Values(s.objects))
	for at, o := range s.dying {
		switch {
		case !time.Now().Before(s.erasing[at]):
			delete(s.dying, at)
		case s.options.SlowReferences:
			all = append(all, o)
		}
	}
	return all
}

// deleteLocked deletes an object that nothing refers to.
func (s *Sim) deleteLocked(at string) error {
	o := s.objects[at]
	if o == nil {
		return notFound(at)
	}
	for _, other := range s.referringLocked() {
		for name := range kindOf(other.Path).references {
			if slices.Contains(texts(other.Fields[name]), at) {
				return &apiError{http.StatusBadRequest, codeUnknown, fmt.Sprintf(
					"The object path=[%s] cannot be deleted as either it has children or it is being referenced by other objects path=[%s].", at, other.Path)}
			}
		}
	}
	if o.Address != "" {
		s.released[o.Address] = time.Now().Add(releaseDelay)
	}
	delete(s.objects, at)
	s.erasing[at], s.dying[at] = time.Now().Add(s.options.Activation), o
	s.wroteLocked()
	return nil
}

// patchTreeLocked changes several objects, all or none. Those that others refer to come first.
func (s *Sim) patchTreeLocked(body []byte) error {
	if s.options.NoTrees {
		return &apiError{http.StatusForbidden, 403, "The user does not have permission to perform this operation"}
	}
	tree, err := decode(body)
	if err != nil {
		return err
	}
	children, ok := tree["children"].([]any)
	if !ok || tree["resource_type"] != "Infra" || len(tree) != 2 {
		return invalid("the tree must be of the type Infra, with children")
	}
	before := s.copiesLocked()
	for _, name := range []string{"LBService", "LBMonitorProfile", "LBPool", "LBVirtualServer"} {
		for _, c := range children {
			child, _ := c.(map[string]any)
			if child["resource_type"] != "Child"+name {
				continue
			}
			if err := s.writeChildLocked(name, child); err != nil {
				s.objects = before
				return err
			}
		}
	}
	for _, c := range children {
		if child, _ := c.(map[string]any); child["written"] != true {
			s.objects = before
			return invalid("unrecognized child %v", child["resource_type"])
		}
	}
	return nil
}

func (s *Sim) writeChildLocked(name string, child map[string]any) error {
	fields, ok := child[name].(map[string]any)
	id, _ := fields["id"].(string)
	if !ok || id == "" || fields["resource_type"] == nil || len(child) != 2 {
		return invalid("child %s: it must have the object, with id and resource_type", name)
	}
	child["written"] = true
	at := treeCollections[name] + "/" + id
	return s.writeLocked(at, kindOf(at), fields, false)
}
