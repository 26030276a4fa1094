package vsphere

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

const (
	// Accounts are locked after a few refused logins, by default five in three minutes. So the same credentials are tried again after
	// firstRefusal, and then with growing pauses.
	firstRefusal = 2 * time.Minute
	maxRefusal   = 10 * time.Minute
	// secretAge is how long the credentials of a working session are not read again.
	secretAge = time.Minute
)

// vcenter is one vCenter with its session and known machines.
type vcenter struct {
	config   vcenterConfig
	api      *api
	endpoint *url.URL
	agent    string

	// loginTurn is held during a login.
	loginTurn chan struct{}

	mu   sync.Mutex
	kube kubernetes.Interface
	// session is the open one, nil if there is none.
	session *session
	// credentialsRead is when credentials were last read; secret is the last readable Secret.
	credentialsRead time.Time
	secret          map[string][]byte
	lastRefusal     refusal
	// identity is the instance UUID of the vCenter that answered first.
	identity string
	// stop ends the tracking of changes; nil where the program does not lead. trackSoon is set while tracking is about to begin, trackAfter is
	// when that may be tried again.
	stop       <-chan struct{}
	trackSoon  bool
	trackAfter time.Time
	tagNames   tagNames

	known *knownMachines
	// everything lists all machines to prove that one is absent: requests at about the same time share one listing.
	everything *inventory.Inventory[string, machine]

	// zonesMu is held while tags are read for zones.
	zonesMu sync.Mutex
	zones   *zoneTags
}

// refusal is a refused login.
type refusal struct {
	sum   [sha256.Size]byte
	until time.Time
	pause time.Duration
	err   error
}

// session is an open session. Nothing in it changes but what its own lock guards.
type session struct {
	*vim25.Client
	vcenter *vcenter
	user    string
	// sum is that of the credentials.
	sum [sha256.Size]byte
	// signer is set where the login was by certificate.
	signer restSigner

	mu   sync.Mutex
	view *types.ManagedObjectReference
	rest string
	// tracker keeps the last listing up to date; oldCollector is a property collector to be destroyed.
	tracker      *tracker
	oldCollector *types.ManagedObjectReference
}

func newVCenter(a *api, c vcenterConfig, endpoint *url.URL, agent string) *vcenter {
	v := &vcenter{config: c, api: a, endpoint: endpoint, agent: agent, loginTurn: make(chan struct{}, 1), known: newKnownMachines()}
	v.everything = inventory.New(inventory.Source[string, machine]{
		Kind: "virtual machine", ID: func(m machine) string { return m.Ref.Value }, List: v.listComplete,
	})
	return v
}

// begin takes what only a leading program has.
func (v *vcenter) begin(b cloudbase.Begun) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kube, v.stop = b.Kube, b.Stop
}

// do runs calls in the session. Where that has ended, a new one is opened, once.
func (v *vcenter) do(ctx context.Context, what string, calls func(context.Context, *session) error) error {
	for attempt := 0; ; attempt++ {
		s, err := v.open(ctx)
		if err != nil {
			return err
		}
		watched, last := cloudapi.RecordLastResponse(ctx)
		err = apiError(calls(watched, s), last, v.config.Key, what)
		if !isFault[types.NotAuthenticated](err) && !errors.Is(err, errSessionEnded) {
			return err
		}
		v.drop(s)
		if attempt > 0 {
			return err
		}
	}
}

// errSessionEnded is an answer that shows that the session has ended, where vCenter does not say so.
var errSessionEnded = errors.New("the session has ended")

// drop forgets a session that has ended, unless another one has replaced it.
func (v *vcenter) drop(s *session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session == s {
		v.session = nil
	}
}

// current returns the open session, nil if its credentials must be read again.
func (v *vcenter) current() *session {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session != nil && time.Since(v.credentialsRead) < secretAge {
		return v.session
	}
	return nil
}

// open returns the open session, or logs in: one caller at a time, and the others get what it has got.
func (v *vcenter) open(ctx context.Context) (*session, error) {
	if s := v.current(); s != nil {
		return s, nil
	}
	select {
	case v.loginTurn <- struct{}{}:
		defer func() { <-v.loginTurn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("vCenter %s: waiting for a login: %w", v.config.Key, ctx.Err())
	}
	if s := v.current(); s != nil {
		return s, nil
	}
	c, err := v.readCredentials(ctx)
	v.mu.Lock()
	old, refused := v.session, v.lastRefusal
	v.credentialsRead = time.Now()
	v.mu.Unlock()
	sum := c.sum()
	switch {
	case old != nil && (err != nil || old.sum == sum):
		return old, nil // what cannot be read now does not end a session
	case err != nil:
		return nil, &cloudapi.Error{
			Class: cloudapi.ErrUnauthorized, Operation: "vCenter " + v.config.Key + ": reading the credentials", Message: err.Error(), NotSent: true,
		}
	case refused.sum == sum && time.Now().Before(refused.until):
		return old.orError(refused.err)
	}
	s, err := v.login(ctx, c)
	if err != nil {
		v.noteRefusal(sum, err)
		return old.orError(err)
	}
	v.mu.Lock()
	v.session, v.lastRefusal = s, refusal{}
	v.mu.Unlock()
	if old != nil {
		v.logout(ctx, old)
	}
	return s, nil
}

// orError returns the session if there is one, else the error: refused new credentials do not end a session that works.
func (s *session) orError(err error) (*session, error) {
	if s == nil {
		return nil, err
	}
	return s, nil
}

// sum tells credentials apart without keeping them.
func (c credentials) sum() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", c.user, c.password, c.sessionURL, c.sessionToken))
}

// noteRefusal remembers refused credentials, so that they are not repeated.
func (v *vcenter) noteRefusal(sum [sha256.Size]byte, err error) {
	if !errors.Is(err, errRefused) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	pause := firstRefusal
	if v.lastRefusal.sum == sum {
		pause = min(2*v.lastRefusal.pause, maxRefusal)
	}
	v.lastRefusal = refusal{sum: sum, until: time.Now().Add(pause), pause: pause, err: err}
}

// errRefused marks a login whose credentials vCenter has refused.
var errRefused = errors.New("the credentials are refused")

// errReplaced says that another vCenter answers.
var errReplaced = errors.New("another vCenter answers at this address")

// login opens a session.
func (v *vcenter) login(ctx context.Context, c credentials) (*session, error) {
	ctx, last := cloudapi.RecordLastResponse(ctx)
	client, err := vim25.NewClient(withMethod(ctx, "RetrieveServiceContent"), v.api.soapClient(v.endpoint, v.agent))
	if err != nil {
		return nil, apiError(err, last, v.config.Key, "connecting")
	}
	if client.ServiceContent.SessionManager == nil || !client.IsVC() {
		return nil, cloudapi.Unclear("vCenter "+v.config.Key+": connecting", "what answers is not a vCenter; check the server")
	}
	if err := v.identify(client.ServiceContent.About.InstanceUuid); err != nil {
		return nil, err
	}
	s := &session{Client: client, vcenter: v, sum: c.sum()}
	if err := s.authenticate(ctx, c); err != nil {
		refused := isFault[types.InvalidLogin](err) || errors.Is(err, errRefused)
		err = apiError(err, last, v.config.Key, "logging in")
		if refused {
			err = fmt.Errorf("%w: %w", err, errRefused)
		}
		return nil, err
	}
	return s, nil
}

// identify remembers which vCenter answered first, and refuses any other: it knows nothing of our virtual machines.
func (v *vcenter) identify(uuid string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.identity == "" {
		v.identity = uuid
	}
	if v.identity == uuid {
		return nil
	}
	return &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: "vCenter " + v.config.Key, Cause: errReplaced,
		Message: fmt.Sprintf("%s: instance %s instead of %s; restart this program if that is intended", errReplaced, uuid, v.identity),
	}
}

// authenticate logs in by password, by certificate, or with a session of the service that hands them out.
func (s *session) authenticate(ctx context.Context, c credentials) error {
	manager := *s.ServiceContent.SessionManager
	switch {
	case c.sessionURL != "":
		ticket, err := s.vcenter.readTicket(ctx, c)
		if err != nil {
			return err
		}
		answer, err := methods.CloneSession(withMethod(ctx, "CloneSession"), s, &types.CloneSession{This: manager, CloneTicket: ticket})
		if err != nil {
			return err //nolint:wrapcheck // apiError names it
		}
		s.user = answer.Returnval.UserName
		s.rest = s.cookie() // both kinds of sessions are one there
		return nil
	case isPEM(c.user):
		return s.loginBySSO(ctx, c)
	}
	answer, err := methods.Login(withMethod(ctx, "Login"), s, &types.Login{This: manager, UserName: c.user, Password: c.password, Locale: locale})
	if err != nil {
		return err //nolint:wrapcheck // apiError names it
	}
	s.user = answer.Returnval.UserName
	return nil
}

const locale = "en_US"

// logout ends a session. A failure does no harm: vCenter ends idle ones.
func (v *vcenter) logout(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(ctx, logoutTimeout)
	defer cancel()
	s.endREST(ctx)
	_, _ = methods.Logout(withMethod(ctx, "Logout"), s, &types.Logout{This: *s.ServiceContent.SessionManager})
}

const logoutTimeout = 5 * time.Second

// close ends the open session.
func (v *vcenter) close(ctx context.Context) {
	v.mu.Lock()
	s := v.session
	v.session = nil
	v.mu.Unlock()
	if s != nil {
		v.logout(ctx, s)
	}
}

var _ soap.RoundTripper = (*session)(nil)
