package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kafka is a running Kafka server, which is its own controller and has no topics.
type Kafka struct {
	*Process
	addr, secureAddr string
}

// The user that a Kafka server has at its [Kafka.SecureAddr], with each mechanism.
const (
	KafkaUser     = "ordergate"
	KafkaPassword = "a \u00fcber secret"
)

// kafkaCluster is the ID of each cluster, as the server wants one.
const kafkaCluster = "AAAAAAAAAAAAAAAAAAAAAQ"

// Kafka starts a Kafka server on a free port. Further settings are those of its server.properties. It
// returns a [*MissingError] if there is no JDK, or if the jars were not fetched. The context bounds the
// start.
func (b *Bed) Kafka(ctx context.Context, settings ...string) (*Kafka, error) {
	java, err := lookPath("java", "java")
	if err != nil {
		return nil, err
	}
	jars, err := b.jars(filepath.Join(b.root, "tests", "kafka"), "kafka")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "kafka-")
	if err != nil {
		return nil, fmt.Errorf("starting kafka: %w", err)
	}
	properties, classPath := filepath.Join(dir, "server.properties"), filepath.Join(jars, "*")
	login, err := b.kafkaLogin(filepath.Join(dir, "server.pem"))
	if err != nil {
		return nil, fmt.Errorf("starting kafka: %w", err)
	}
	k, p := &Kafka{}, &Process{path: java}
	// The cheap compiler and a small heap: the start is what a test waits for.
	p.args = []string{"-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classPath, "kafka.Kafka", properties}
	pick := func() error {
		var ports [3]int
		for i := range ports {
			if ports[i], err = freePort(65535); err != nil {
				return err
			}
		}
		k.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
		controller := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[1]))
		k.secureAddr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[2]))
		text := login + "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://" + k.addr + ",SECURE://" + k.secureAddr + ",CONTROLLER://" + controller +
			"\ncontroller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@" + controller + "\nlog.dirs=" + filepath.Join(dir, "data") +
			"\noffsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\nauto.create.topics.enable=false\nlog.initial.task.delay.ms=500\n"
		for _, line := range settings {
			text += line + "\n"
		}
		return os.WriteFile(properties, []byte(text), 0o600)
	}
	if err := pick(); err != nil {
		return nil, fmt.Errorf("starting kafka: %w", err)
	}
	format := exec.CommandContext(ctx, java, "-XX:TieredStopAtLevel=1", "-cp", classPath, "kafka.tools.StorageTool", "format", "-t", kafkaCluster, "-c", properties,
		"--add-scram", scramUser("SCRAM-SHA-256"), "--add-scram", scramUser("SCRAM-SHA-512"))
	if err := oneLine(format); err != nil {
		return nil, fmt.Errorf("formatting kafka's storage: %w", err)
	}
	p.ready = func(ctx context.Context, r *run) error {
		return r.until(ctx, func() error { return ping(ctx, k.addr) })
	}
	if err := b.launchOnFreePort(ctx, "kafka", p, pick); err != nil {
		return nil, err
	}
	k.Process = p
	return k, nil
}

// kafkaLogin returns the settings of a listener with TLS and logins. It writes the certificate to a file.
func (b *Bed) kafkaLogin(file string) (string, error) {
	certs, err := b.Certificates()
	if err != nil {
		return "", err
	}
	var pem []byte
	for _, part := range []string{certs.ServerKey, certs.ServerCert} {
		text, err := os.ReadFile(part)
		if err != nil {
			return "", err
		}
		pem = append(pem, text...)
	}
	const of = "listener.name.secure."
	return "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL\n" +
		of + "ssl.keystore.type=PEM\n" + of + "ssl.keystore.location=" + file + "\n" +
		of + "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n" +
		of + "plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_" + KafkaUser + "=" + strconv.QuoteToASCII(KafkaPassword) + ";\n" +
		of + "scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;\n" +
		of + "scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;\n", os.WriteFile(file, pem, 0o600)
}

// scramUser returns the user as Kafka's storage tool takes it.
func scramUser(mechanism string) string {
	return fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, KafkaUser, KafkaPassword)
}

// Addr returns the server's "host:port". It stays the same over a restart.
func (k *Kafka) Addr() string { return k.addr }

// SecureAddr returns the "host:port" with TLS, by [Bed.Certificates], where [KafkaUser] has to log in.
func (k *Kafka) SecureAddr() string { return k.secureAddr }

// CreateTopic makes a topic. One of this name that is being deleted is an error.
func (k *Kafka) CreateTopic(ctx context.Context, name string, partitions int32) error {
	request, topic := kmsg.NewPtrCreateTopicsRequest(), kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	request.Topics = append(request.Topics, topic)
	client, err := kgo.NewClient(kgo.SeedBrokers(k.addr))
	if err != nil {
		return err
	}
	defer client.Close()
	reply, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(reply.Topics[0].ErrorCode)
}

// ping makes sure that a Kafka server serves requests at an address, and can have topics.
func ping(ctx context.Context, addr string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	reply, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err == nil && len(reply.Brokers) == 0 {
		err = errors.New("the server is not registered yet")
	}
	return err
}
