import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.redisson.api.RBloomFilter;
import org.redisson.api.RBucket;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RGeo;
import org.redisson.api.RLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.misc.ReclosableLatch;

/**
 * The calls that the agent knows, each one of Redisson's own with its arguments
 * in the order they have there, behind the kind and before the names. Times are
 * in milliseconds; a lease of -1 is one that Redisson renews.
 */
final class Commands {
    private static final TimeUnit MILLIS = TimeUnit.MILLISECONDS;
    private final RedissonClient redisson;

    Commands(RedissonClient redisson) {
        this.redisson = redisson;
    }

    /** Runs a call in the calling thread; what it returns is null for void. */
    Object run(String command, List<String> args) throws InterruptedException {
        if (command.equals("owner")) { // what Redisson calls this thread in Redis
            return redisson.getId() + ":" + Thread.currentThread().getId();
        }
        if (command.equals("waiting")) {
            return Thread.getAllStackTraces().values().stream().filter(Commands::waits).count();
        }
        return switch (args.get(0)) {
            case "fenced" -> fenced(command, args);
            case "semaphore" -> semaphore(command, args);
            case "bloom" -> bloom(command, args);
            case "latch" -> latch(command, args);
            case "bucket" -> bucket(command, args);
            case "geo" -> geo(command, args);
            default -> lock(command, args);
        };
    }

    private Object lock(String command, List<String> args) throws InterruptedException {
        switch (command) {
            case "lock" -> {
                lock(args, 2).lock(number(args, 1), MILLIS);
                return null;
            }
            case "tryLock" -> {
                return lock(args, 3).tryLock(number(args, 1), number(args, 2), MILLIS);
            }
            case "unlock" -> {
                lock(args, 1).unlock();
                return null;
            }
            case "isLocked" -> {
                return lock(args, 1).isLocked();
            }
            case "holdCount" -> {
                return lock(args, 1).getHoldCount();
            }
            case "remainTimeToLive" -> {
                return lock(args, 1).remainTimeToLive();
            }
            case "forceUnlock" -> {
                return lock(args, 1).forceUnlock();
            }
            default -> throw unknown(command, args);
        }
    }

    /** The lock of a kind whose names begin at an index. */
    private RLock lock(List<String> args, int names) {
        String name = args.get(names);
        return switch (args.get(0)) {
            case "lock" -> redisson.getLock(name);
            case "fenced" -> redisson.getFencedLock(name);
            case "fair" -> redisson.getFairLock(name);
            case "read" -> redisson.getReadWriteLock(name).readLock();
            case "write" -> redisson.getReadWriteLock(name).writeLock();
            case "multi" -> redisson.getMultiLock(
                args.subList(names, args.size()).stream().map(redisson::getLock).toArray(RLock[]::new));
            default -> throw unknown("a lock", args);
        };
    }

    private Object fenced(String command, List<String> args) throws InterruptedException {
        RFencedLock lock = redisson.getFencedLock(args.get(args.size() - 1));
        return switch (command) {
            case "lockAndGetToken" -> lock.lockAndGetToken();
            case "tryLockAndGetToken" -> lock.tryLockAndGetToken(number(args, 1), number(args, 2), MILLIS);
            case "getToken" -> lock.getToken();
            default -> lock(command, args);
        };
    }

    private Object semaphore(String command, List<String> args) throws InterruptedException {
        RSemaphore semaphore = redisson.getSemaphore(args.get(args.size() - 1));
        switch (command) {
            case "trySetPermits" -> {
                return semaphore.trySetPermits(Math.toIntExact(number(args, 1)));
            }
            case "acquire" -> {
                semaphore.acquire(Math.toIntExact(number(args, 1)));
                return null;
            }
            case "tryAcquire" -> {
                return semaphore.tryAcquire(Math.toIntExact(number(args, 1)), Duration.ofMillis(number(args, 2)));
            }
            case "release" -> {
                semaphore.release(Math.toIntExact(number(args, 1)));
                return null;
            }
            case "availablePermits" -> {
                return semaphore.availablePermits();
            }
            default -> throw unknown(command, args);
        }
    }

    /** The codec, "string", "default", or "long" for Long by default, stands before the name: bloom CODEC NAME ARG... */
    private Object bloom(String command, List<String> args) {
        String name = args.get(2);
        return switch (args.get(1)) {
            case "string" -> bloom(redisson.<String>getBloomFilter(name, StringCodec.INSTANCE), command, args, item -> item);
            case "default" -> bloom(redisson.<String>getBloomFilter(name), command, args, item -> item);
            case "long" -> bloom(redisson.<Long>getBloomFilter(name), command, args, Long::valueOf);
            default -> throw unknown(command, args);
        };
    }

    private <T> Object bloom(RBloomFilter<T> filter, String command, List<String> args, Function<String, T> item) {
        return switch (command) {
            case "tryInit" -> filter.tryInit(number(args, 3), Double.parseDouble(args.get(4)));
            case "add" -> filter.add(item.apply(args.get(3)));
            case "contains" -> filter.contains(item.apply(args.get(3)));
            case "count" -> filter.count();
            default -> throw unknown(command, args);
        };
    }

    private Object latch(String command, List<String> args) throws InterruptedException {
        RCountDownLatch latch = redisson.getCountDownLatch(args.get(args.size() - 1));
        switch (command) {
            case "trySetCount" -> {
                return latch.trySetCount(number(args, 1));
            }
            case "countDown" -> {
                latch.countDown();
                return null;
            }
            case "getCount" -> {
                return latch.getCount();
            }
            case "await" -> {
                return latch.await(number(args, 1), MILLIS);
            }
            default -> throw unknown(command, args);
        }
    }

    /** The codec stands before the name, as with bloom. */
    private Object bucket(String command, List<String> args) {
        String name = args.get(2);
        RBucket<String> bucket = switch (args.get(1)) {
            case "string" -> redisson.getBucket(name, StringCodec.INSTANCE);
            case "default" -> redisson.getBucket(name);
            default -> throw unknown(command, args);
        };
        switch (command) {
            case "set" -> {
                bucket.set(args.get(3));
                return null;
            }
            case "get" -> {
                return bucket.get();
            }
            default -> throw unknown(command, args);
        }
    }

    /** The codec stands before the name, as with bloom. */
    private Object geo(String command, List<String> args) {
        String name = args.get(2);
        RGeo<String> geo = switch (args.get(1)) {
            case "string" -> redisson.getGeo(name, StringCodec.INSTANCE);
            case "default" -> redisson.getGeo(name);
            default -> throw unknown(command, args);
        };
        return switch (command) {
            case "add" -> geo.add(Double.parseDouble(args.get(3)), Double.parseDouble(args.get(4)), args.get(5));
            default -> throw unknown(command, args);
        };
    }

    /** Whether a thread of a test sleeps until Redisson hears a message for it. */
    private static boolean waits(StackTraceElement[] trace) {
        List<String> classes = Arrays.stream(trace).map(StackTraceElement::getClassName).toList();
        return trace.length > 0 && trace[0].getMethodName().equals("park") && classes.contains(Commands.class.getName())
            && (classes.contains(Semaphore.class.getName()) || classes.contains(ReclosableLatch.class.getName()));
    }

    private static long number(List<String> args, int index) {
        return Long.parseLong(args.get(index));
    }

    private static IllegalArgumentException unknown(String command, List<String> args) {
        return new IllegalArgumentException("unknown call " + command + " of " + args);
    }
}
