// A program that is busy in one known function, allocates in another, waits for a lock in a third, and is profiled by the
// agent for Java.
import io.pyroscope.labels.v2.LabelsSet;
import io.pyroscope.labels.v2.Pyroscope;

public class Busy {
    static volatile long sink;
    static volatile byte[] kept;
    static final Object LOCK = new Object();

    static void knownBusyFunction(long until) {
        while (System.nanoTime() < until) {
            long sum = 0;
            for (int number = 0; number < 1_000_000; number++) {
                sum += sum ^ number;
            }
            sink += sum;
        }
    }

    static void knownGreedyFunction() {
        for (int turn = 0; turn < 200; turn++) {
            kept = new byte[1 << 20];
        }
    }

    static void knownBlockedFunction() {
        synchronized (LOCK) {
            sink += 1;
        }
    }

    static void holdLock() throws InterruptedException {
        Thread other = new Thread(Busy::knownBlockedFunction);
        synchronized (LOCK) {
            other.start();
            while (other.getState() != Thread.State.BLOCKED) Thread.onSpinWait();
            Thread.sleep(200);
        }
        other.join();
    }

    public static void main(String[] arguments) throws Exception {
        knownGreedyFunction();
        holdLock();
        Pyroscope.LabelsWrapper.run(
                new LabelsSet("work", "known"), () -> knownBusyFunction(System.nanoTime() + 4_000_000_000L));
        // The agent sends now and then, and not at its end: whoever started this says when all has come.
        System.out.println("done");
        while (System.in.read() >= 0) {}
    }
}
