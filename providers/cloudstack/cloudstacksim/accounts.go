package cloudstacksim

import (
	"slices"
	"strings"
	"time"
)

// Name is the provider that the simulator stands for, and ProviderIDPrefix begins the provider IDs that its controller writes.
const (
	Name             = "external-cloudstack"
	ProviderIDPrefix = "external-cloudstack://"
)

// Names of what exists in every new simulator.
const (
	// User is the account whose key controllers have.
	User = "kube"
	// Other is the account of somebody else in the same domain.
	Other = "other"
	// Admin is the account of root admins.
	Admin = "admin"
	// ZoneName is the name of the only zone.
	ZoneName = "zone-1"
	// ProjectName is the name of the only project; User is a member of it.
	ProjectName = "team"
	// ProjectID is its ID.
	ProjectID  = "5d1c7a3e-0b8f-4e0f-9a3a-4c2f9d7e6b10"
	domainName = "ROOT"
	domainID   = "0b1f2a30-0000-4000-8000-00000000d0d0"
)

// Keys of the accounts.
const (
	APIKey    = "miVr6X7u6bN_sdahOBpjNejPgEsT35eXq-kube"
	SecretKey = "VzPX8Vm9MCTYTXmz0sfV8uWqT2Yh2vYJw_kube"
	OtherKey  = "miVr6X7u6bN_sdahOBpjNejPgEsT35eXq-other"
	AdminKey  = "miVr6X7u6bN_sdahOBpjNejPgEsT35eXq-admin"
	// AdminSecret and OtherSecret are the secret keys of the accounts Admin and Other.
	AdminSecret = "VzPX8Vm9MCTYTXmz0sfV8uWqT2Yh2vYJw_admin"
	OtherSecret = "VzPX8Vm9MCTYTXmz0sfV8uWqT2Yh2vYJw_other"
)

// The limit of a server whose throttling is on, by default.
const (
	PublishedCalls    = 25
	PublishedInterval = time.Second
)

type account struct {
	name, id, userID, key, secret string
	admin                         bool
	// allowed are the commands of its role; nil means all that users have.
	allowed []string
}

type project struct {
	ID, Name string
	members  []string
}

func (s *Sim) addAccounts() {
	for _, a := range []*account{
		{name: Admin, key: AdminKey, secret: AdminSecret, admin: true},
		{name: User, key: APIKey, secret: SecretKey},
		{name: Other, key: OtherKey, secret: OtherSecret},
	} {
		a.id, a.userID = s.newID("account"), s.newID("user")
		s.accounts = append(s.accounts, a)
	}
	s.kinds[ProjectID], s.kinds[domainID] = "project", "domain"
	s.projects = []*project{{ID: ProjectID, Name: ProjectName, members: []string{User}}}
}

func (s *Sim) accountNamed(name string) *account {
	for _, a := range s.accounts {
		if a.name == name {
			return a
		}
	}
	return nil
}

func (s *Sim) accountOf(key string) *account {
	for _, a := range s.accounts {
		if a.key == key {
			return a
		}
	}
	return nil
}

func (s *Sim) projectByID(id string) *project {
	for _, p := range s.projects {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// SetSecret changes the secret key of the account User.
func (s *Sim) SetSecret(secret string) { s.mu.Do(func() { s.accountNamed(User).secret = secret }) }

// MakeRootAdmin makes the account User, who owns the machines, one of root admins.
func (s *Sim) MakeRootAdmin() { s.mu.Do(func() { s.accountNamed(User).admin = true }) }

// Restrict gives the account with a key a role that has these commands alone; none lifts it.
func (s *Sim) Restrict(key string, commands ...string) {
	s.mu.Do(func() { s.accountOf(key).allowed = slices.Clone(commands) })
}

// apiLimit is the throttling of a server: so many calls of an account in an interval.
type apiLimit struct {
	calls    int
	interval time.Duration
	windows  map[string]*window
}

type window struct {
	ends time.Time
	used int
}

// SetLimit switches throttling on; 0 calls switch it off.
func (s *Sim) SetLimit(calls int, interval time.Duration) {
	s.mu.Do(func() { s.limit = apiLimit{calls: calls, interval: interval, windows: map[string]*window{}} })
}

// countCall counts a call of an account.
func (l *apiLimit) countCall(id string) error {
	if l.calls == 0 {
		return nil
	}
	w := l.windows[id]
	if now := time.Now(); w == nil || !now.Before(w.ends) {
		w = &window{ends: now.Add(l.interval)}
		l.windows[id] = w
	}
	if w.used++; w.used > l.calls {
		return refuse(codeLimit, "The given user has reached his/her account api limit, please retry after %d ms.", time.Until(w.ends).Milliseconds())
	}
	return nil
}

// mayOperate reports whether an account may change what an owner has; owner is an account's or a project's ID.
func (s *Sim) mayOperate(a *account, owner string) bool {
	if a.admin || a.id == owner {
		return true
	}
	p := s.projectByID(owner)
	return p != nil && slices.Contains(p.members, a.name)
}

// checkOperate refuses the change of a foreign thing.
func (s *Sim) checkOperate(a *account, owner string) error {
	if s.mayOperate(a, owner) {
		return nil
	}
	return refuse(codePermission, "Acct[%s-%s] -- Account {\"id\": 3, \"name\": %q} does not have permission to operate with resource", a.id, a.name, a.name)
}

// scope tells whose things a listing shows.
func (c *call) scope() (func(owner string) bool, error) {
	s, a := c.s, c.caller
	isProject := func(owner string) bool { return s.projectByID(owner) != nil }
	switch id := c.p["projectid"]; {
	case id == "-1":
		return func(owner string) bool { return isProject(owner) && s.mayOperate(a, owner) }, nil
	case id != "":
		if !s.mayOperate(a, id) {
			return nil, refuse(codePermission, "Account %s can't access project id=%s", a.name, id)
		}
		return func(owner string) bool { return owner == id }, nil
	}
	if name := c.p["account"]; name != "" {
		named := s.accountNamed(name)
		if named == nil || c.p["domainid"] == "" {
			return nil, refuse(codeParam, "Unable to find account %s in domain %s", name, c.p["domainid"])
		}
		if !s.mayOperate(a, named.id) {
			return nil, s.checkOperate(a, named.id)
		}
		return func(owner string) bool { return owner == named.id }, nil
	}
	if a.admin && (c.p.boolean("listall", false) || c.p["id"] != "") {
		return func(owner string) bool { return c.p["id"] != "" || !isProject(owner) }, nil
	}
	return func(owner string) bool { return owner == a.id }, nil
}

// withOwner adds the owner to what is shown of a thing.
func (s *Sim) withOwner(m map[string]any, owner string) map[string]any {
	if p := s.projectByID(owner); p != nil {
		m["projectid"], m["project"] = p.ID, p.Name
	}
	for _, a := range s.accounts {
		if a.id == owner {
			m["account"] = a.name
		}
	}
	m["domainid"], m["domain"] = domainID, domainName
	return m
}

func (c *call) listProjects() (any, error) {
	var list []map[string]any
	for _, p := range c.s.projects {
		member := c.caller.admin || slices.Contains(p.members, c.caller.name)
		if !member || !c.matches("id", p.ID) || (c.p["name"] != "" && !strings.EqualFold(c.p["name"], p.Name)) ||
			!strings.Contains(strings.ToLower(p.Name), strings.ToLower(c.p["keyword"])) {
			continue
		}
		list = append(list, map[string]any{
			"id": p.ID, "name": p.Name, "displaytext": p.Name, "domainid": domainID, "domain": domainName, "state": "Active",
			"created": created, "owner": []any{map[string]any{"account": User}},
		})
	}
	return c.page("project", list)
}

func (c *call) listZones() (any, error) {
	z := c.s.zone
	if !c.matches("id", z.ID) || (c.p["name"] != "" && c.p["name"] != z.Name) {
		return c.page("zone", nil)
	}
	return c.page("zone", []map[string]any{{
		"id": z.ID, "name": z.Name, "networktype": "Advanced", "securitygroupsenabled": false, "allocationstate": "Enabled",
		"dhcpprovider": "VirtualRouter", "localstorageenabled": false, "zonetoken": "2f2e8a5b-ca9b-31a9-bd2b-28f3f9bd3b4a", "type": "Core",
	}})
}

func (c *call) listCapabilities() (any, error) {
	capability := map[string]any{
		"securitygroupsenabled": false, "dynamicrolesenabled": true, "cloudstackversion": c.s.version.text, "userpublictemplateenabled": true,
		"supportELB": "false", "projectinviterequired": false, "allowusercreateprojects": true, "customdiskofferingminsize": 1,
		"customdiskofferingmaxsize": 1024, "regionsecondaryenabled": false, "kvmsnapshotenabled": true,
		"allowuserviewdestroyedvm": false, "allowuserexpungerecovervm": false, "allowuserviewalldomainaccounts": false,
		"kubernetesserviceenabled": false, "kubernetesclusterexperimentalfeaturesenabled": false, "defaultuipagesize": 20,
	}
	if l := c.s.limit; l.calls > 0 {
		capability["apilimitmax"], capability["apilimitinterval"] = l.calls, int(l.interval.Seconds())
	}
	return map[string]any{"capability": capability}, nil
}

func (c *call) listManagementServersMetrics() (any, error) {
	return c.page("managementserver", []map[string]any{{
		"id": "6a0a1e0d-0000-4000-8000-0000000000aa", "name": "management-1", "state": "Up", "version": c.s.version.text,
		"javaversion": "17.0.12", "javadistribution": "Ubuntu", "osdistribution": "Linux 5.15", "ipaddress": "10.1.1.1",
	}})
}
