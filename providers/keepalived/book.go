package keepalived

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/shared"
)

const (
	// gather is how long a change waits for others that are written with it.
	gather = 200 * time.Millisecond
	// writeSpacing is the shortest time between two writes.
	writeSpacing = time.Second
	// writeTimeout bounds a write with all that it takes.
	writeTimeout = 20 * time.Second
	// unwatchedMaxAge is for how long memory is believed where no watch tells of changes.
	unwatchedMaxAge = 10 * time.Second
	// maxOwn is how many versions are remembered that we wrote, to tell them from those of others.
	maxOwn = 64
)

// change makes another record of the one that is stored. It is called again where somebody else wrote meanwhile.
type change func(record) (record, error)

// version is the ConfigMap of one moment, nil where there is none, and the record of it.
type version struct {
	stored *v1.ConfigMap
	record record
}

// book is the ConfigMap that says who has which address. Each write names the version that it was made of, so that no process writes over
// what another one wrote.
type book struct {
	namespace, name string
	// publish completes a record by the data that belong to it.
	publish func(ctx context.Context, before, after record) (record, error)

	writer shared.Writer[version]
	mu     sync.Mutex
	client kubernetes.Interface
	// known is the ConfigMap as it was read or written last, nil where there is none; fresh is unset where nobody knows.
	known *v1.ConfigMap
	fresh bool
	// asked is when it was read or written, and watched reports whether a watch tells of changes; nil where none does yet.
	asked   time.Time
	watched func() bool
	own     []string
	wrote   time.Time
	// reading is held while the API server is asked, so that concurrent questions are one.
	reading chan struct{}
}

func newBook(namespace, name string, publish func(ctx context.Context, before, after record) (record, error)) *book {
	return &book{namespace: namespace, name: name, publish: publish, reading: make(chan struct{}, 1)}
}

func (b *book) title() string { return "ConfigMap " + b.namespace + "/" + b.name }

func (b *book) setClient(client kubernetes.Interface) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.client = client
}

// follow notes that a watch tells of changes once it has synced. What was read before it began may be old.
func (b *book) follow(synced func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched, b.fresh = synced, false
}

// observe notes what a watch shows; nil is a ConfigMap that does not exist. What we did not write ourselves is read again.
func (b *book) observe(cm *v1.ConfigMap) (foreign bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cm != nil && (slices.Contains(b.own, cm.ResourceVersion) || (b.known != nil && b.known.ResourceVersion == cm.ResourceVersion)) {
		return false
	}
	if cm == nil && b.fresh && b.known == nil {
		return false
	}
	b.fresh = false
	return true
}

func (b *book) isWatched() bool { return b.watched != nil && b.watched() }

// read returns what is stored, from memory where that is known.
func (b *book) read(ctx context.Context) (record, error) {
	cm, err := b.current(ctx)
	if err != nil {
		return record{}, err
	}
	return readRecord(cm)
}

func (b *book) current(ctx context.Context) (*v1.ConfigMap, error) {
	select {
	case b.reading <- struct{}{}:
		defer func() { <-b.reading }()
	case <-ctx.Done():
		return nil, fmt.Errorf("reading %s: %w", b.title(), ctx.Err())
	}
	b.mu.Lock()
	cm, client := b.known, b.client
	fresh := b.fresh && (b.isWatched() || time.Since(b.asked) < unwatchedMaxAge)
	if fresh || client == nil {
		b.mu.Unlock()
		if client == nil {
			return nil, fmt.Errorf("reading %s: the program does not lead yet", b.title())
		}
		return cm, nil
	}
	b.fresh, b.asked = true, time.Now() // unless a watch says otherwise meanwhile
	b.mu.Unlock()
	cm, err := client.CoreV1().ConfigMaps(b.namespace).Get(ctx, b.name, metav1.GetOptions{})
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err):
		cm = nil
	case err != nil:
		b.fresh = false
		return nil, kubeError(err, "reading "+b.title())
	}
	b.known = cm
	return cm, nil
}

// commit makes a change and returns what is stored then.
func (b *book) commit(ctx context.Context, apply change) (record, error) {
	target := shared.Target[version]{
		ID: b.title(), Name: b.title(), Gather: b.pause, Timeout: writeTimeout, Open: func() shared.Document[version] { return b },
	}
	after, err := b.writer.Submit(ctx, target, func(_ context.Context, before version) (version, error) {
		next, err := apply(before.record)
		return version{before.stored, next}, err
	})
	return after.record, err
}

// pause is how long a change waits for others that are written with it.
func (b *book) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(gather, writeSpacing-time.Since(b.wrote))
}

// Read implements shared.Document.
func (b *book) Read(ctx context.Context, _ bool) (version, error) {
	cm, err := b.current(ctx)
	if err != nil {
		return version{}, err
	}
	r, err := readRecord(cm)
	return version{cm, r}, err
}

// Write implements shared.Document.
func (b *book) Write(ctx context.Context, before, after version) (version, error) {
	r, err := b.publish(ctx, before.record, after.record)
	if err != nil || (slices.Equal(before.record.entries, r.entries) && maps.Equal(before.record.data, r.data)) {
		return version{before.stored, r}, err
	}
	err = b.store(ctx, before.stored, r)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		err = shared.Outdated(err)
	}
	return version{before.stored, r}, err
}

// store writes the ConfigMap, of the version that cm is.
func (b *book) store(ctx context.Context, cm *v1.ConfigMap, r record) error {
	exists := cm != nil
	if exists {
		cm = cm.DeepCopy()
	} else {
		cm = &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: b.name}}
	}
	if cm.Annotations == nil {
		cm.Annotations = map[string]string{}
	}
	cm.Annotations[annotationRegistry], cm.Data = r.encode(), r.data
	b.mu.Lock()
	client := b.client
	b.wrote = time.Now()
	b.mu.Unlock()
	var written *v1.ConfigMap
	var err error
	if exists {
		written, err = client.CoreV1().ConfigMaps(b.namespace).Update(ctx, cm, metav1.UpdateOptions{})
	} else {
		written, err = client.CoreV1().ConfigMaps(b.namespace).Create(ctx, cm, metav1.CreateOptions{})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.fresh = false // it may have been written
		return kubeError(err, "writing "+b.title())
	}
	b.known, b.asked = written, time.Now()
	if b.own = append(b.own, written.ResourceVersion); len(b.own) > maxOwn {
		b.own = b.own[1:]
	}
	return nil
}
