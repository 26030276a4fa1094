package cloudstacksim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// The lists that every zone has; nobody changes them.
const (
	listDeny  = "default_deny"
	listAllow = "default_allow"
)

// ACLList is a list of network ACLs; one without a VPC is global.
type ACLList struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	VPC  string `json:"vpc"`
}

// ACLItem is one of a list. Protocol keeps the case in which it was sent.
type ACLItem struct {
	ID       string   `json:"id"`
	List     string   `json:"list"`
	Protocol string   `json:"protocol"`
	Start    int      `json:"start"`
	End      int      `json:"end"`
	CIDRs    []string `json:"cidrs"`
	Action   string   `json:"action"`
	Traffic  string   `json:"traffic"`
	Number   int      `json:"number"`
	Reason   string   `json:"reason"`
	State    string   `json:"state"`
}

func (s *Sim) addGlobalLists() {
	for _, name := range []string{listDeny, listAllow} {
		s.addACLList(name, "")
	}
}

func (s *Sim) addACLList(name, vpc string) *ACLList {
	id := s.newID("acl")
	return s.aclLists.Put(id, &ACLList{ID: id, Name: name, VPC: vpc})
}

// AddACLList adds a list, which is global without a VPC, and returns its ID.
func (s *Sim) AddACLList(name, vpc string) string {
	return simkit.Get(&s.mu, func() string { return s.addACLList(name, vpc).ID })
}

// UseList gives the tier of the nodes a global list, which is made where there is none of that name.
func (s *Sim) UseList(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.aclListNamed(name)
	if l == nil {
		l = s.addACLList(name, "")
	}
	s.networks.ByID[s.seedNet].ACL = l.ID
}

// UsedList is the ID of the list of the tier of the nodes.
func (s *Sim) UsedList() string {
	return simkit.Get(&s.mu, func() string { return s.networks.ByID[s.seedNet].ACL })
}

// AddACLItem adds an item as somebody does by hand, and returns its ID.
func (s *Sim) AddACLItem(item ACLItem) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	item.ID, item.State = s.newID("aclitem"), ruleActive
	if item.Number == 0 {
		item.Number = s.nextNumber(item.List)
	}
	s.aclItems.Put(item.ID, &item)
	return item.ID
}

// EditACLItem changes an item of a list as somebody does by hand.
func (s *Sim) EditACLItem(id string, change func(*ACLItem)) {
	s.mu.Do(func() { change(s.aclItems.ByID[id]) })
}

// RemoveACLItems deletes all items of lists as somebody does by hand.
func (s *Sim) RemoveACLItems() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.aclItems.All() {
		s.aclItems.Remove(i.ID)
	}
}

func (s *Sim) nextNumber(list string) (number int) {
	for _, i := range s.aclItems.All() {
		if i.List == list {
			number = max(number, i.Number)
		}
	}
	return number + 1
}

func (s *Sim) aclListNamed(name string) *ACLList {
	for _, l := range s.aclLists.All() {
		if l.Name == name && l.VPC == "" {
			return l
		}
	}
	return nil
}

// ownerOfList returns the owner of a list; a global one belongs to root admins.
func (s *Sim) ownerOfList(l *ACLList) string {
	if v := s.vpcs.ByID[l.VPC]; v != nil {
		return v.Owner
	}
	return s.accountNamed(Admin).id
}

func (c *call) listNetworkACLLists() (any, error) {
	s := c.s
	visible, err := c.scope()
	if err != nil {
		return nil, err
	}
	used := ""
	if n := s.networks.ByID[c.p["networkid"]]; n != nil {
		used = n.ACL
	}
	var list []map[string]any
	for _, l := range s.aclLists.All() {
		if (l.VPC != "" && !visible(s.ownerOfList(l))) || (c.p["networkid"] != "" && l.ID != used) || !c.matches("id", l.ID) ||
			(c.p["vpcid"] != "" && l.VPC != "" && l.VPC != c.p["vpcid"]) || !c.matches("name", l.Name) || !c.keyword(l.Name) {
			continue
		}
		m := map[string]any{"id": l.ID, "name": l.Name, "description": l.Name, "fordisplay": true}
		if v := s.vpcs.ByID[l.VPC]; v != nil {
			m["vpcid"], m["vpcname"] = v.ID, v.Name
		}
		list = append(list, m)
	}
	return c.page("networkacllist", list)
}

func (c *call) listNetworkACLs() (any, error) {
	s := c.s
	visible, err := c.scope()
	if err != nil {
		return nil, err
	}
	aclID := c.p["aclid"]
	if n := s.networks.ByID[c.p["networkid"]]; n != nil && aclID == "" {
		if aclID = n.ACL; aclID == "" {
			return c.page("networkacl", nil)
		}
	}
	var list []map[string]any
	for _, i := range simkit.Scattered(&s.order, s.aclItems.All(), func(i *ACLItem) string { return i.ID }) {
		l := s.aclLists.ByID[i.List]
		fits := func(parameter, value string) bool {
			return c.p[parameter] == "" || strings.EqualFold(c.p[parameter], value)
		}
		if visible(s.ownerOfList(l)) && c.matches("id", i.ID) && (aclID == "" || aclID == l.ID) && fits("protocol", i.Protocol) &&
			fits("action", i.Action) && fits("traffictype", i.Traffic) && c.keyword(i.Protocol, i.Reason, strings.Join(i.CIDRs, ",")) {
			list = append(list, s.shownItem(i))
		}
	}
	return c.page("networkacl", list)
}

func (s *Sim) shownItem(i *ACLItem) map[string]any {
	l := s.aclLists.ByID[i.List]
	m := map[string]any{
		"id": i.ID, "aclid": l.ID, "aclname": l.Name, "protocol": i.Protocol, "cidrlist": strings.Join(i.CIDRs, ","), "action": i.Action,
		"traffictype": i.Traffic, "number": i.Number, "state": i.State, "fordisplay": true, "tags": []any{},
	}
	if i.Reason != "" {
		m["reason"] = i.Reason
	}
	if i.Start > 0 {
		m["startport"], m["endport"] = strconv.Itoa(i.Start), strconv.Itoa(i.End)
	}
	if s.hasJob(i.ID, "deleteNetworkACL") {
		m["state"] = "Deleting"
	}
	return m
}

// checkChangeable refuses lists that the caller may not change.
func (c *call) checkChangeable(l *ACLList, words string) error {
	if l.Name == listDeny || l.Name == listAllow {
		if l.VPC == "" {
			return refuse(codeParam, "%s", words)
		}
	}
	if l.VPC == "" && !c.caller.admin {
		return refuse(codePermission, "Only Root Admin can operate on global ACLs")
	}
	return c.s.checkOperate(c.caller, c.s.ownerOfList(l))
}

// fillItem sets the fields of an item that a request has, and refuses values that no item has.
func (c *call) fillItem(i *ACLItem) error {
	if p, given := c.p["protocol"]; given {
		lower := strings.ToLower(p)
		if n, err := strconv.Atoi(p); !slices.Contains([]string{"tcp", "udp", "icmp", "all"}, lower) && (err != nil || n < 0 || n > 255) {
			return refuse(codeParam, "Invalid protocol [%s]. Expected one of: [tcp, udp, icmp, all or a number of a protocol].", p)
		}
		i.Protocol = p
	}
	if _, given := c.p["cidrlist"]; given {
		list := c.p.list("cidrlist")
		if err := cidrs(list, false, "Source cidrs formatting error %s"); err != nil {
			return err
		}
		i.CIDRs = list
	}
	if err := c.setWord("action", "Invalid action [%s]. Expected %s or %s", "Allow", "Deny", &i.Action); err != nil {
		return err
	}
	if err := c.setWord("traffictype", "Invalid traffic type [%s]. Expected %s or %s", "Ingress", "Egress", &i.Traffic); err != nil {
		return err
	}
	if c.p["startport"] != "" || c.p["endport"] != "" {
		start, end, err := c.ports(strings.ToLower(i.Protocol))
		if err != nil {
			return err
		}
		i.Start, i.End = start, end
	}
	if r := c.p["reason"]; r != "" {
		i.Reason = r
	}
	return c.setNumber(i)
}

// setWord sets a field that has one of two values, whatever their case in the request.
func (c *call) setWord(parameter, refusal, one, other string, field *string) error {
	switch given := c.p[parameter]; {
	case given == "":
	case strings.EqualFold(given, one):
		*field = one
	case strings.EqualFold(given, other):
		*field = other
	default:
		return refuse(codeParam, refusal, given, one, other)
	}
	return nil
}

func (c *call) setNumber(i *ACLItem) error {
	if c.p["number"] == "" {
		return nil
	}
	number := c.p.number("number", 0)
	if number < 1 {
		return refuse(codeParam, "Invalid number %d: it has to be positive", number)
	}
	for _, other := range c.s.aclItems.All() {
		if other.List == i.List && other.Number == number && other.ID != i.ID {
			return refuse(codeParam, "ACL item with number %d already exists in ACL: %s", number, i.List)
		}
	}
	i.Number = number
	return nil
}

func (c *call) createNetworkACL() (any, error) {
	s := c.s
	id := c.p["aclid"]
	if id == "" {
		n := s.networks.ByID[c.p["networkid"]]
		switch {
		case n == nil:
			return nil, refuse(codeParam, "Cannot create Network ACL Item. ACL Id or network Id is required")
		case n.VPC == "":
			return nil, refuse(codeParam, "Network: %s does not belong to VPC", n.ID)
		}
		id = n.ACL
	}
	l := s.aclLists.ByID[id]
	if l == nil {
		return nil, refuse(codeParam, "Unable to find specified ACL.")
	}
	if err := c.checkChangeable(l, "Default ACL cannot be modified"); err != nil {
		return nil, err
	}
	i := &ACLItem{List: l.ID, CIDRs: []string{allNetworks}, Action: "Allow", Traffic: "Ingress", Number: s.nextNumber(l.ID), State: ruleAdd}
	if err := c.fillItem(i); err != nil {
		return nil, err
	}
	i.ID = s.newID("aclitem")
	s.aclItems.Put(i.ID, i)
	return jobResponse(c.submit("", job{
		kind: "NetworkAcl", object: i.ID, undo: func() { s.aclItems.Remove(i.ID) },
		effect: func() (any, error) {
			i.State = ruleActive
			return map[string]any{"networkacl": s.shownItem(i)}, s.checkRoom("network ACL item")
		},
	}), i.ID), nil
}

func (c *call) item() (*ACLItem, *ACLList, error) {
	i := c.s.aclItems.ByID[c.p["id"]]
	if i == nil {
		return nil, nil, refuse(codeParam, "Unable to find network ACL Item with ID [%s].", c.p["id"])
	}
	return i, c.s.aclLists.ByID[i.List], nil
}

func (c *call) deleteNetworkACL() (any, error) {
	s := c.s
	i, l, err := c.item()
	if err == nil {
		err = c.checkChangeable(l, "ACL Items in default ACL cannot be deleted")
	}
	if err != nil {
		return nil, err
	}
	return jobResponse(c.submit("", job{
		kind: "NetworkAcl", object: i.ID,
		effect: func() (any, error) {
			if s.aclItems.ByID[i.ID] == nil {
				return nil, refuse(codeParam, "Unable to find network ACL Item with ID [%s].", i.ID)
			}
			s.aclItems.Remove(i.ID)
			return success(), nil
		},
	}), ""), nil
}
