// Package awssim is a simulator of the parts of AWS that AnyCCM uses: EC2, Elastic Load Balancing of both generations, the
// instance metadata service and STS. It keeps its state in memory and is strict: parameters that it does not know are
// refused, as are values that AWS refuses.
//
// It follows the API references of Amazon EC2 (2016-11-15), Elastic Load Balancing (2012-06-01 and 2015-12-01) and STS
// (2011-06-15), all of the Query protocol.
package awssim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	// Region is the region that is simulated.
	Region = "us-east-1"
	// VPC is the one of everything that is seeded.
	VPC = "vpc-0a1b2c3d4e5f60718"
	// Account is the owner of everything.
	Account = "123456789012"
	// ClusterID is the cluster of seeded instances, subnets and groups.
	ClusterID = "simulated"
	// Key is the access key ID that is accepted unless Options.Key says otherwise.
	Key = "AKIASIMULATED0000000"

	clusterTag = "kubernetes.io/cluster/"
)

// Services by the version parameter of their Query protocol.
const (
	serviceEC2   = "EC2"
	serviceELB   = "ELB"
	serviceELBv2 = "ELBv2"
	serviceSTS   = "STS"
)

// versions tell the services apart; they share one endpoint here.
func versions(version string) string {
	return map[string]string{"2016-11-15": serviceEC2, "2012-06-01": serviceELB, "2015-12-01": serviceELBv2, "2011-06-15": serviceSTS}[version]
}

// Options of a simulated region.
type Options struct {
	// Key is the only access key ID that is accepted; empty means Key.
	Key string
	// Activation is how long a new network load balancer is in the state provisioning.
	Activation time.Duration
	// Release is how long a deleted load balancer holds on to its security groups and target groups.
	Release time.Duration
	// Lag is how long reads may show an older state. An object created within it may be missing, even in calls that name it.
	Lag time.Duration
	// PageLimit bounds every page; 0 means the services' own limits.
	PageLimit int
	// FixedHealthChecks refuses changes of protocol and interval of health checks, as the API once did.
	FixedHealthChecks bool
	// Observe is told the operation of every call; nil if nobody wants to know.
	Observe func(operation string)
	// GroupRules is the quota of rules of a security group; 0 means 60.
	GroupRules int
}

// Sim is a simulated region.
type Sim struct {
	mu      sync.Mutex
	options Options
	key     string
	serial  int
	self    string
	roles   []string

	// region is the state that reads return; it may be that of a moment ago.
	region
	past simkit.Lagging[region]
	// holds are security groups that interfaces of deleted load balancers still use, and until when.
	holds map[string]time.Time
	// ghosts are deleted load balancers that their target groups still show, by the ARN of the target group.
	ghosts map[string]ghost
	eips   map[string]string
	zones  []Zone
	// topologies are network nodes by instance type prefix.
	topologies map[string]bool
	denied     map[string]bool
	// blind makes listings of instances empty, as another account sees them.
	blind bool
	// headers are those of the latest call of each operation.
	headers map[string]http.Header
	// dice put into no order what AWS gives no order to. They fall alike in every run.
	dice *rand.Rand
}

// region is everything that reads show.
type region struct {
	simkit.Machines[string, Instance]
	interfaces simkit.Table[string, Interface]
	subnets    simkit.Table[string, Subnet]
	tables     simkit.Table[string, RouteTable]
	groups     simkit.Table[string, Group]
	classics   simkit.Table[string, ClassicLB]
	networks   simkit.Table[string, LoadBalancer]
	listeners  simkit.Table[string, Listener]
	targets    simkit.Table[string, TargetGroup]
}

// lock begins a change, or a look, from outside; the function that it returns ends it.
func (s *Sim) lock() (unlock func()) {
	s.mu.Lock()
	return func() {
		s.wrote()
		s.mu.Unlock()
	}
}

// wrote notes what reads may see from now on. The lock is held.
func (s *Sim) wrote() {
	if s.options.Lag > 0 {
		s.past.Wrote(s.clone())
	}
}

// seeing runs a read on a state of now or of some time before. The lock is held.
func (s *Sim) seeing(read func() (answer, error)) (answer, error) {
	if s.options.Lag == 0 {
		return read()
	}
	now := s.region
	defer func() { s.region = now }()
	s.region, _ = s.past.Any(s.dice.IntN)
	return read()
}

// anyOrder returns a list in an order that says nothing.
func anyOrder[T any](s *Sim, list []T) []T {
	list = slices.Clone(list)
	s.dice.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// Header returns a header of the latest call of an operation.
func (s *Sim) Header(operation, name string) string {
	defer s.lock()()
	return s.headers[operation].Get(name)
}

// Zone is an availability zone, a local zone or a wavelength zone.
type Zone struct{ Name, ID, Type string }

// New returns a region with a VPC of three zones, each with a public and a private subnet, and nothing else.
func New(o Options) (*Sim, *simkit.Server) {
	s := &Sim{
		options: o, key: cmp.Or(o.Key, Key), dice: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // a test must be reproducible
		holds: map[string]time.Time{}, ghosts: map[string]ghost{}, eips: map[string]string{}, topologies: map[string]bool{},
		denied: map[string]bool{}, headers: map[string]http.Header{},
		zones: []Zone{
			{Region + "a", "use1-az1", "availability-zone"},
			{Region + "b", "use1-az2", "availability-zone"},
			{Region + "c", "use1-az3", "availability-zone"},
			{Region + "-bos-1a", "use1-bos1-az1", "local-zone"},
		},
	}
	s.Machines = simkit.Machines[string, Instance]{
		Lock: &s.mu, Status: func(i *Instance) *string { return &i.State }, Removed: s.dropTargets, Changed: s.wrote,
		Make: func(name string) { s.AddInstance(Spec{Name: name}) },
		About: func(i *Instance) simkit.Instance {
			return simkit.Instance{Name: i.PrivateDNS, ProviderID: "aws:///" + i.Zone + "/" + i.ID, Status: i.State}
		},
	}
	public := &RouteTable{
		ID: "rtb-0000000000000000a", VPC: VPC, Tags: Tags{"Name": "public"},
		Routes: []*Route{{CIDR: "10.0.0.0/16", Gateway: "local"}, {CIDR: "0.0.0.0/0", Gateway: "igw-0123456789abcdef0"}},
	}
	private := &RouteTable{
		ID: "rtb-0000000000000000b", VPC: VPC, Main: true, Tags: Tags{clusterTag + ClusterID: "owned"}, Routes: []*Route{{CIDR: "10.0.0.0/16", Gateway: "local"}},
	}
	for i, zone := range s.zones[:3] {
		for j, kind := range []string{"public", "private"} {
			n := &Subnet{
				ID: fmt.Sprintf("subnet-%016x", 0xa0+i*2+j), VPC: VPC, Zone: zone.Name, CIDR: fmt.Sprintf("10.0.%d.0/24", i*2+j),
				Tags: Tags{"Name": fmt.Sprintf("%s-%s", kind, zone.Name), clusterTag + ClusterID: "shared"},
			}
			if kind == "public" {
				n.Tags["kubernetes.io/role/elb"] = "1"
				n.CIDRv6 = fmt.Sprintf("2001:db8:0:%x::/64", i)
				public.Subnets = append(public.Subnets, n.ID)
			} else {
				n.Tags["kubernetes.io/role/internal-elb"] = "1"
			}
			s.subnets.Put(n.ID, n)
		}
	}
	s.tables.Put(public.ID, public)
	s.tables.Put(private.ID, private)
	s.groups.Put(NodeGroup, &Group{ID: NodeGroup, Name: "nodes", Description: "nodes", VPC: VPC, Tags: Tags{clusterTag + ClusterID: "owned"}})
	s.past.SetLag(o.Lag, s.clone())
	return s, simkit.New(s)
}

// SetLag changes Options.Lag: from now on reads may show what was before for that long.
func (s *Sim) SetLag(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options.Lag = lag
	s.past.SetLag(lag, s.clone())
}

// NewServer is New for the program that serves simulated clouds.
func NewServer(token string, activation time.Duration, _ bool) *simkit.Server {
	_, server := New(Options{Key: token, Activation: activation, Release: activation})
	return server
}

// firstSubnet is the public subnet of the first zone.
const firstSubnet = "subnet-00000000000000a0"

// NodeGroup is the security group of all seeded instances.
const NodeGroup = "sg-00000000000000001"

// Tags of an object.
type Tags map[string]string

// newID returns an identifier as EC2 makes them; it grows, so that the order of creation shows.
func (s *Sim) newID(prefix string) string {
	s.serial++
	return fmt.Sprintf("%s-%017x", prefix, 0x1000+s.serial)
}

// handler carries out a call. The lock is held.
type handler func(*Sim, *params) (answer, error)

// Operation implements simkit.Cloud: "EC2 DescribeInstances", with "{id}" behind it where instances are named.
func (*Sim) Operation(r *http.Request) (name string, write bool) {
	if strings.HasPrefix(r.URL.Path, "/latest/") {
		return "IMDS " + r.URL.Path, false
	}
	values := form(r)
	action := values.Get("Action")
	name = versions(values.Get("Version")) + " " + action
	if action == "DescribeInstances" && values.Has("InstanceId.1") {
		name += " {id}"
	}
	return name, !strings.HasPrefix(action, "Describe") && !strings.HasPrefix(action, "AssumeRole")
}

// PerMinute implements simkit.OperationLimits with the buckets that EC2's API reference publishes, turned into minutes.
func (*Sim) PerMinute(r *http.Request) (group string, limit int) {
	name, write := (&Sim{}).Operation(r)
	service, _, _ := strings.Cut(name, " ")
	if write {
		return service + " write", 300
	}
	return service + " read", 1200
}

// ServeHTTP implements simkit.Cloud.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/latest/") {
		s.metadata(w, r)
		return
	}
	values := form(r)
	operation, _ := s.Operation(r)
	s.headers[operation] = r.Header.Clone()
	if s.options.Observe != nil {
		s.options.Observe(operation)
	}
	service, action := versions(values.Get("Version")), values.Get("Action")
	body, err := s.call(r, service, action, values)
	if err = overLimit(w, service, err); err != nil {
		f, ok := errors.AsType[*fault](err)
		if !ok {
			f = &fault{http.StatusInternalServerError, "InternalFailure", err.Error()}
		}
		writeFault(w, service, f)
		return
	}
	id := requestID()
	root := el(action + "Response")
	if service == serviceEC2 {
		root.kids = append([]elem{tx("requestId", id)}, body...)
	} else {
		root.kids = []elem{{name: action + "Result", kids: body}, el("ResponseMetadata", tx("RequestId", id))}
	}
	send(w, http.StatusOK, id, root)
}

// call checks the credential, finds the handler and lets it work.
func (s *Sim) call(r *http.Request, service, action string, values url.Values) (answer, error) {
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	key, scope, signed := strings.Cut(credential, "/")
	scope, _, _ = strings.Cut(scope, ",")
	switch {
	case !signed:
		return nil, &fault{http.StatusForbidden, "MissingAuthenticationToken", "Request is missing Authentication Token"}
	case key != s.key && !slices.Contains(s.roles, key):
		if service == serviceEC2 {
			return nil, &fault{http.StatusUnauthorized, "AuthFailure", "AWS was not able to validate the provided access credentials"}
		}
		return nil, &fault{http.StatusForbidden, "InvalidClientTokenId", "The security token included in the request is invalid"}
	case len(strings.Split(scope, "/")) != 4 || strings.Split(scope, "/")[1] != Region:
		return nil, &fault{http.StatusForbidden, "SignatureDoesNotMatch", "Credential should be scoped to a valid region, not " + scope}
	case s.denied[action]:
		if service == serviceEC2 {
			return nil, &fault{http.StatusForbidden, "UnauthorizedOperation", "You are not authorized to perform this operation."}
		}
		return nil, &fault{http.StatusForbidden, "AccessDenied", "User is not authorized to perform: elasticloadbalancing:" + action}
	}
	handle := operations(service)[action]
	if handle == nil {
		return nil, refuse("InvalidAction", "%s is not an action of %s", action, service)
	}
	if err := simkit.CheckLimits(s, awslimits.Table, r); err != nil {
		return nil, err
	}
	member := ".member"
	if service == serviceEC2 {
		member = ""
	}
	var wrong error
	p := &params{values: values, member: member, used: map[string]bool{}, fault: &wrong}
	if strings.HasPrefix(action, "Describe") {
		return s.seeing(func() (answer, error) { return handle(s, p) })
	}
	body, err := handle(s, p)
	s.wrote()
	return body, err
}

func operations(service string) map[string]handler {
	switch service {
	case serviceEC2:
		return ec2Operations()
	case serviceELB:
		return classicOperations()
	case serviceELBv2:
		return networkOperations()
	case serviceSTS:
		return map[string]handler{"AssumeRole": (*Sim).assumeRole}
	}
	return nil
}

// WriteError implements simkit.Cloud.
func (s *Sim) WriteError(w http.ResponseWriter, status int, message string) {
	writeFault(w, serviceEC2, ec2Fault(status, message))
}

// WriteErrorFor implements simkit.RequestErrors.
func (s *Sim) WriteErrorFor(w http.ResponseWriter, r *http.Request, status int, message string) {
	name, _ := s.Operation(r)
	service, _, _ := strings.Cut(name, " ")
	f := ec2Fault(status, message)
	if service != serviceEC2 {
		f = elbFault(status, message)
	}
	writeFault(w, service, f)
}

// InOrder implements simkit.Refusals: what is gone, held by something that is gone, or refused for the credential was asked for
// properly. To delete what a living listener uses is a fault.
func (*Sim) InOrder(status int, body []byte) bool {
	_, rest, _ := strings.Cut(string(body), "<Code>")
	code, _, _ := strings.Cut(rest, "</Code>")
	held := code == "ResourceInUse" && strings.Contains(string(body), goneLoadBalancer)
	return status == http.StatusUnauthorized || status == http.StatusForbidden || held || strings.HasSuffix(code, "NotFound") ||
		slices.Contains([]string{"DependencyViolation", "InvalidTarget", "InvalidInstance", "UnsupportedOperation"}, code)
}

// page cuts a page out of a list; the token is where the next one begins. What is on a page stays, its order does not.
func page[T any](s *Sim, p *params, list []T, sizeName, tokenName string, usual, highest int) ([]T, string) {
	size := usual
	if n := p.within(sizeName, 1, highest); n != nil {
		size = *n
	}
	if s.options.PageLimit > 0 {
		size = min(size, s.options.PageLimit)
	}
	start := 0
	if token := p.text(tokenName); token != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(token, "page-"))
		if err != nil {
			p.note(refuse("InvalidNextToken", "the token %q is not valid", token))
		}
		start = min(n, len(list))
	}
	end := min(start+size, len(list))
	next := ""
	if end < len(list) {
		next = fmt.Sprintf("page-%d", end)
	}
	return anyOrder(s, list[start:end]), next
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	read := func(r *http.Request) (service, action string, listing bool) {
		name, _ := (&Sim{}).Operation(r)
		service, action, _ = strings.Cut(name, " ")
		action, _, _ = strings.Cut(action, " ")
		return service, action, strings.HasPrefix(action, "Describe")
	}
	return map[string]simkit.Distortion{
		// empty-set: a well-formed answer without anything in it.
		"empty-set": func(r *http.Request, _ []byte) ([]byte, bool) {
			service, action, listing := read(r)
			if service == serviceEC2 {
				return []byte("<" + action + "Response><requestId>x</requestId></" + action + "Response>"), listing
			}
			return []byte("<" + action + "Response><" + action + "Result/></" + action + "Response>"), listing
		},
		// no-answer: XML with a request ID that is no answer of the API.
		"no-answer": func(r *http.Request, _ []byte) ([]byte, bool) {
			_, _, listing := read(r)
			return []byte("<html><body><requestId>x</requestId></body></html>"), listing
		},
	}
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"power-off": simkit.SetStatus(s.SetStatus, "stopped"),
		"power-on":  simkit.SetStatus(s.SetStatus, "running"),
		"terminate": simkit.SetStatus(s.SetStatus, "terminated"),
		// token changes the access key.
		"token": simkit.SetToken(s.SetKey),
		// deny refuses an action for lack of a permission, or allows it again.
		"deny": simkit.Action(func(in struct {
			Action string
			Allow  bool
		},
		) error {
			s.Deny(in.Action, !in.Allow)
			return nil
		}),
	}
}

// SetKey changes the access key ID that is accepted.
func (s *Sim) SetKey(key string) {
	defer s.lock()()
	s.key, s.roles = key, nil
}

// Deny refuses an action for lack of a permission.
func (s *Sim) Deny(action string, denied bool) {
	defer s.lock()()
	s.denied[action] = denied
}

// Blind makes this another account, which sees none of the instances.
func (s *Sim) Blind() {
	defer s.lock()()
	s.blind = true
}

// Environment implements simkit.Cloud.
func (s *Sim) Environment(url string) map[string]string {
	defer s.lock()()
	return map[string]string{
		"AWS_ACCESS_KEY_ID": s.key, "AWS_SECRET_ACCESS_KEY": "simulated", "AWS_ENDPOINT_URL": url,
		"AWS_EC2_METADATA_SERVICE_ENDPOINT": url,
	}
}

// CloudConfig implements simkit.CloudConfigurer: the cloud config of a controller that does not run on an instance.
func (s *Sim) CloudConfig(string) string {
	return fmt.Sprintf("[Global]\nRegion = %s\nVPC = %s\nSubnetID = %s\nKubernetesClusterID = %s\n", Region, VPC, firstSubnet, ClusterID)
}

// Holdings implements simkit.Cloud.
func (s *Sim) Holdings() []string {
	defer s.lock()()
	lines := []string{}
	for _, lb := range s.classics.All() {
		ports := []string{}
		for _, l := range lb.Listeners {
			ports = append(ports, fmt.Sprintf("%s/%d", l.Protocol, l.Port))
		}
		lines = append(lines, fmt.Sprintf("classic load balancer %s, address %s, %s, %d nodes", lb.Name, lb.DNSName, strings.Join(ports, ", "), len(lb.Instances)))
	}
	for _, lb := range s.networks.All() {
		ports, targets := []string{}, map[string]bool{}
		for _, l := range s.listenersOf(lb.ARN) {
			ports = append(ports, fmt.Sprintf("%s/%d", l.Protocol, l.Port))
			if tg := s.targets.ByID[l.TargetGroup]; tg != nil {
				for _, t := range tg.Targets {
					targets[t.ID] = true
				}
			}
		}
		lines = append(lines, fmt.Sprintf("network load balancer %s, %s, address %s, %s, %d nodes", lb.Name, s.stateOf(lb), lb.DNSName, strings.Join(ports, ", "), len(targets)))
	}
	return lines
}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	defer s.lock()()
	return simkit.Snapshot(map[string]any{
		"instances": s.VMs.All(), "subnets": s.subnets.All(), "routeTables": s.tables.All(), "securityGroups": s.groups.All(),
		"classicLoadBalancers": s.classics.All(), "loadBalancers": s.networks.All(), "listeners": s.listeners.All(), "targetGroups": s.targets.All(),
	})
}

// metadata is the instance metadata service, version 2, seen from the instance that Self chose.
func (s *Sim) metadata(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/latest/api/token" && r.Method == http.MethodPut {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
		_, _ = io.WriteString(w, "simulated-token")
		return
	}
	self := s.VMs.ByID[s.self]
	if r.Header.Get("X-Aws-Ec2-Metadata-Token") == "" || self == nil {
		http.Error(w, "", map[bool]int{true: http.StatusNotFound, false: http.StatusUnauthorized}[self == nil])
		return
	}
	switch r.URL.Path {
	case "/latest/meta-data/instance-id":
		_, _ = io.WriteString(w, self.ID)
	case "/latest/meta-data/placement/region":
		_, _ = io.WriteString(w, Region)
	case "/latest/dynamic/instance-identity/document":
		_ = json.NewEncoder(w).Encode(map[string]string{"region": Region, "instanceId": self.ID, "accountId": Account, "availabilityZone": self.Zone})
	default:
		http.NotFound(w, r)
	}
}

// Self makes the metadata service answer as on an instance.
func (s *Sim) Self(id string) {
	defer s.lock()()
	s.self = id
}

// assumeRole gives out a credential of a role.
func (s *Sim) assumeRole(p *params) (answer, error) {
	role, session := p.required("RoleArn"), p.required("RoleSessionName")
	p.number("DurationSeconds")
	if err := p.finish(); err != nil {
		return nil, err
	}
	key := fmt.Sprintf("ASIAROLE%012d", len(s.roles)+1)
	s.roles = append(s.roles, key)
	return answer{
		el(
			"Credentials", tx("AccessKeyId", key), tx("SecretAccessKey", "simulated"), tx("SessionToken", "simulated"), tx("Expiration", time.Now().Add(time.Hour)),
		),
		el("AssumedRoleUser", tx("Arn", role+"/"+session), tx("AssumedRoleId", "AROASIMULATED:"+session)),
	}, nil
}
