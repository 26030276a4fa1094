package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
	"github.com/anyccm/cloud-controller-manager/registry/views"
)

const (
	// eventDefaultsInvalid and eventDefaultsValid are events on the lease about the file of --service-defaults.
	eventDefaultsInvalid = "ServiceDefaultsInvalid"
	eventDefaultsValid   = "ServiceDefaultsValid"
	// eventDefaultsPending: the file's classes differ from those at the start.
	eventDefaultsPending = "ServiceDefaultsPending"

	// defaultsPeriod is how often the file is read.
	defaultsPeriod = 5 * time.Second

	// defaulted is an annotation that makes Services appear changed to the framework after the file changed. No stored Service has it.
	defaulted = "anyccm.io/service-defaults"
)

var defaultsInvalid = metrics.NewGauge(&metrics.GaugeOpts{
	Namespace: "anyccm", Subsystem: "service_defaults", Name: "invalid", StabilityLevel: metrics.ALPHA,
	Help: "1 while the file of --service-defaults has faults, and the last good one is in force.",
})

var registerDefaultsMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(defaultsInvalid) })

// serviceDefaults are annotations from a file for Services that do not set them.
type serviceDefaults struct {
	path   string
	source defaults.Source

	mu sync.Mutex
	// data is the last valid content; classes are those at the start.
	data    []byte
	classes []string
	// seen is the file's content or error at the last check.
	seen *string
	// pending is the last message about classes that take effect after a restart.
	pending string

	notifier serviceNotifier
}

func (d *serviceDefaults) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&d.path, "service-defaults", d.path, "File with annotations for Services that have none of their own, as a list of loadBalancerClass (\"\" for Services without a class) and annotations. The classes are served too. It is read again when it changes.")
}

// load reads the file, and reports all faults together.
func (d *serviceDefaults) load(p registry.Provider, in registry.Inputs) error {
	if d.path == "" {
		return nil
	}
	data, err := readDefaults(d.path)
	if err != nil {
		return err
	}
	if err := d.applyIfValid(p, in, data); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.data, d.classes = data, d.source.Set().Classes()
	return nil
}

// maxDefaults limits the file's size: a ConfigMap holds no more.
const maxDefaults = 1 << 20

// readDefaults reads the file up to the limit.
func readDefaults(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--service-defaults: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxDefaults+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--service-defaults: %w", err)
	case len(data) > maxDefaults:
		return nil, fmt.Errorf("--service-defaults=%s: is longer than %d bytes, which is what a ConfigMap holds", path, maxDefaults)
	}
	return data, nil
}

// applyIfValid applies the content of the file if it has no faults.
func (d *serviceDefaults) applyIfValid(p registry.Provider, in registry.Inputs, data []byte) error {
	set, err := defaults.Parse(data, func(annotations map[string]string) error { return registry.CheckDefaults(p, in, annotations) })
	if err != nil {
		return prefixProblems("--service-defaults="+d.path+": ", err)
	}
	before := d.source.Set()
	for _, class := range d.servedClasses() {
		if _, still := set[class]; !still {
			// Its Services are served until the program ends: without its defaults, internal ones could become public.
			set[class] = before[class]
		}
	}
	d.source.Use(set)
	return nil
}

// reportPending reports once which classes need a restart: the cache of Services has those of the start, and removing a class at once would
// orphan its load balancers.
func (d *serviceDefaults) reportPending(ctx context.Context, data []byte, report func(kind, reason, message string)) {
	set, err := defaults.Parse(data, func(map[string]string) error { return nil })
	if err != nil {
		return
	}
	var texts []string
	for _, class := range set.Classes() {
		if !slices.Contains(d.servedClasses(), class) {
			texts = append(texts, "class "+class+" is new in the defaults of Services, and is served after a restart")
		}
	}
	for _, class := range d.servedClasses() {
		if _, still := set[class]; !still {
			texts = append(texts, "class "+class+" is gone from the defaults of Services; it is served, with the defaults that it had, until a restart")
		}
	}
	if text := strings.Join(texts, "; "); text != d.pending {
		d.pending = text
		if text != "" {
			klog.FromContext(ctx).Info("The classes of the defaults of Services changed", "pending", text)
			report(v1.EventTypeNormal, eventDefaultsPending, text)
		}
	}
}

// prefixProblems adds the place to each problem.
func prefixProblems(place string, err error) error {
	var all []error
	for _, problem := range schema.Problems(err) {
		all = append(all, fmt.Errorf("%s%w", place, problem))
	}
	return errors.Join(all...)
}

// servedClasses are the classes that the file named at the start.
func (d *serviceDefaults) servedClasses() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.classes
}

// follow applies changes of the file until the context ends. A broken file leaves the last good content in force.
func (d *serviceDefaults) follow(ctx context.Context, p registry.Provider, in registry.Inputs, report func(kind, reason, message string)) {
	registerDefaultsMetrics()
	broken := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if data, err := readDefaults(d.path); d.isUnchanged(data, err) {
			broken = d.applyContent(ctx, p, in, data, err, broken, report)
		}
	}, defaultsPeriod)
}

// isUnchanged reports whether the file equals the last read. A half-written file may be valid.
func (d *serviceDefaults) isUnchanged(data []byte, err error) bool {
	text := string(data)
	if err != nil {
		text = err.Error()
	}
	before := d.seen
	d.seen = &text
	return before != nil && *before == text
}

// applyContent applies the content, and returns its faults. It reports each only once.
func (d *serviceDefaults) applyContent(
	ctx context.Context, p registry.Provider, in registry.Inputs, data []byte, err error, broken string,
	report func(kind, reason, message string),
) string {
	if err == nil && bytes.Equal(data, d.data) && broken == "" {
		return ""
	}
	if err == nil && len(data) == 0 {
		err = fmt.Errorf("--service-defaults=%s: is empty; write [] where there are to be no defaults any more", d.path)
	}
	before := d.source.Set()
	if err == nil {
		err = d.applyIfValid(p, in, data)
	}
	if err != nil {
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		if text != broken {
			defaultsInvalid.Set(1)
			klog.FromContext(ctx).Error(err, "The defaults of Services are broken; the last good ones stay in force")
			report(v1.EventTypeWarning, eventDefaultsInvalid, "the defaults of Services are broken, and the last good ones stay in force: "+text)
		}
		return text
	}
	if broken != "" {
		defaultsInvalid.Set(0)
		report(v1.EventTypeNormal, eventDefaultsValid, "the defaults of Services are good again")
	}
	d.data = data
	d.reportPending(ctx, data, report)
	d.reconcile(p, before, d.source.Set())
	return ""
}

// reconcile makes the framework reconcile only Services whose defaults changed.
func (d *serviceDefaults) reconcile(p registry.Provider, before, now defaults.Set) {
	cloud := p.Cloud()
	d.notifier.notify(defaulted, func(s *v1.Service) (string, string, bool) {
		class := defaults.ClassOf(s)
		_, had := portable.WithDefaults(cloud, s, before[class])
		_, has := portable.WithDefaults(cloud, s, now[class])
		return fmt.Sprint(had), fmt.Sprint(has), !maps.Equal(had, has) // maps are printed in the order of their keys
	})
}

// withDefaults connects the framework's service controller to changes of the file.
func (m *manager) withDefaults(inner frameworkapp.ControllerInitFuncConstructor) frameworkapp.ControllerInitFuncConstructor {
	construct := inner.Constructor
	inner.Constructor = func(
		i frameworkapp.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface,
	) frameworkapp.InitFunc {
		d := &m.defaults
		if d.path == "" {
			return construct(i, c, cloud)
		}
		report := m.eventFunc(c)
		init := construct(i, withInformers(c, views.Services(c.SharedInformers, d.notifier.watchServices())), cloud)
		return func(ctx context.Context, cc controllermanager.ControllerContext) (controller.Interface, bool, error) {
			in, err := m.inputs()
			if err != nil {
				return nil, false, err
			}
			p, err := m.providers.Lookup(c.ComponentConfig.KubeCloudShared.CloudProvider.Name)
			if err != nil {
				return nil, false, err
			}
			d.notifier.setLister(c.SharedInformers.Core().V1().Services().Lister())
			rescue.Go("following the defaults of Services", func() { d.follow(ctx, p, in, report) })
			return init(ctx, cc)
		}
	}
	return inner
}
