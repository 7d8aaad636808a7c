package dev.staffetta;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/** A base that does nothing but load modules. */
@SpringBootApplication
public class BaseApplication {
    public static void main(String[] arguments) {
        SpringApplication.run(BaseApplication.class, arguments);
    }
}
